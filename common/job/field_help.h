// Words for people about the fields of a protobuf message: what a field takes, which fields there are, which
// one was meant.
#ifndef CATCHMENT_COMMON_JOB_FIELD_HELP_H_
#define CATCHMENT_COMMON_JOB_FIELD_HELP_H_

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace catchment {

// "a whole number from 0 to 4294967295", "one of AUTO, CPU, CUDA".
std::string DescribeType(const google::protobuf::FieldDescriptor& field);

// "no such field; did you mean learning_rate? (kind, learning_rate, momentum, ...)".
std::string DescribeUnknownField(const google::protobuf::Descriptor& message, const std::string& name);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_FIELD_HELP_H_
