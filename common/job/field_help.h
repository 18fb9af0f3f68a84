// Texts for errors about the fields of a protobuf message.
#ifndef CATCHMENT_COMMON_JOB_FIELD_HELP_H_
#define CATCHMENT_COMMON_JOB_FIELD_HELP_H_

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace catchment {

// Returns the type of a field in words: "a whole number from 0 to 4294967295", "one of AUTO, CPU, CUDA".
std::string DescribeType(const google::protobuf::FieldDescriptor& field);

// Describes the error of a field that does not exist: "no such field; did you mean learning_rate? (kind,
// learning_rate, momentum, ...)", or, for a former name, "is called trust_coefficient now".
std::string DescribeUnknownField(const google::protobuf::Descriptor& message, const std::string& name);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_FIELD_HELP_H_
