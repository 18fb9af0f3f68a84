// Protobuf's text format, read with errors that a person can act on: file, line, column, the path of the
// field, and for a wrong name the nearest right one.
//
//   mnist.textproto:12:3: optimizer.learing_rate: no such field; did you mean learning_rate? (kind, ...)
//
// Errors: InvalidArgument for a text that is wrong; what the system says for a file that cannot be read.
#ifndef CATCHMENT_COMMON_JOB_TEXT_FORMAT_H_
#define CATCHMENT_COMMON_JOB_TEXT_FORMAT_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/file_access.h"

namespace catchment {

// Returns the content of a whole text file, without a byte order mark. Errors: those of OpenFile;
// InvalidArgument for UTF-16.
absl::StatusOr<std::string> ReadTextFile(const std::string& path,
                                         FileNamedBy named_by = FileNamedBy::kDirectory);

// Replaces *message by the message in `text`, in which names of enumerations, true and false may have any
// case. `source` is the name of the text in errors, mostly a file. `path` is the place of *message in the
// message that the user knows; empty if it is that message.
absl::Status ParseText(const std::string& text, const std::string& source, const std::string& path,
                       google::protobuf::Message* message);

// Changes to a message from the command line: "optimizer.learning_rate=0.05", "device=CPU".
//
// PATH=VALUE. The path has the names of the job file, and an item of a list its index, from 0:
// "model.layers[5].dropout.rate". Values are
//   numbers and texts as they are, without quotes;
//   names of enums and true/false, in any case;
//   for a list of numbers, texts or names, an item or all in brackets, which replace the list, as in
//     "data.table.train=a.csv" and "data.table.shape=[3, 32, 32]"; an index sets an item, or adds one;
//   a message's fields in braces, which replace the whole message: "data.drawn_digits={train_samples: 1000}".
// Setting a member of a oneof clears the others: "updates" clears "epochs". But an item of a list
// keeps its kind unless its message is given as a whole: "model.layers[5].dropout.rate=0" is refused when
// layer 5 is a dense layer.
//
// Applies the overrides in order, so that a later one replaces an earlier one. Errors: InvalidArgument with
// all problems, one on each line; *message is then undefined.
absl::Status ApplyOverrides(const std::vector<std::string>& overrides, google::protobuf::Message* message);

// Returns the type of a field in words: "a whole number from 0 to 4294967295", "one of AUTO, CPU, CUDA".
std::string DescribeType(const google::protobuf::FieldDescriptor& field);

// Describes the error of a value that the field cannot have: "expected one of AUTO, CPU, CUDA, got TPU". An
// empty `got` is `nothing`.
std::string DescribeMismatch(const google::protobuf::FieldDescriptor& field, const std::string& got,
                             const char* nothing);

// Describes the error of a field that does not exist: "no such field; did you mean learning_rate? (kind,
// learning_rate, momentum, ...)", or, for a former name, "is called trust_coefficient now".
std::string DescribeUnknownField(const google::protobuf::Descriptor& message, const std::string& name);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_TEXT_FORMAT_H_
