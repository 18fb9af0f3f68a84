// Protobuf's text format, read with errors that a person can act on: file, line, column, the path of the
// field, and for a wrong name the nearest right one.
//
//   mnist.textproto:12:3: optimizer.learing_rate: no such field; did you mean learning_rate? (kind, ...)
//
// Errors: InvalidArgument for a text that is wrong; what the system says for a file that cannot be read.
#ifndef CATCHMENT_COMMON_JOB_TEXT_FORMAT_H_
#define CATCHMENT_COMMON_JOB_TEXT_FORMAT_H_

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace catchment {

// The content of a whole file.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

// Replaces *message by what `text` says. `source` names the text in errors: its file, as a rule. `path` is
// where *message stands in the message that the user knows; empty when it is that message.
absl::Status ParseText(const std::string& text, const std::string& source, const std::string& path,
                       google::protobuf::Message* message);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_TEXT_FORMAT_H_
