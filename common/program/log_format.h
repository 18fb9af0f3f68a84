// The format of a daemon's log on standard error: glog's lines of text, or a JSON object in each line.
//
// An object has these keys, and those of its event:
//   time      RFC 3339, UTC, microseconds
//   severity  INFO, WARNING, ERROR or FATAL
//   program   the name of the program, and pid, the number of its process
//   source    the file and the line that wrote the message
//   message   the same sentence as in text
//   event     if the message has further keys: progress and evaluation, with those of metrics.jsonl
//             (docs/outputs.md); event, of the job, with recoveries and updates_computed_again; end, with
//             exit_code
#ifndef CATCHMENT_COMMON_PROGRAM_LOG_FORMAT_H_
#define CATCHMENT_COMMON_PROGRAM_LOG_FORMAT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/string_view.h"

namespace catchment {

// Logs JSON instead of text from now on, for as long as the process lives. Call it once, after
// InitGoogleLogging.
void LogJson(absl::string_view program);

// Logs a message at INFO; JSON gets the fields, too. `fields` is an object. Threads: any.
void LogEvent(absl::string_view event, const nlohmann::ordered_json& fields, absl::string_view message);

// Writes gRPC's messages to glog from then on, a few a second, and the number of those that are left out. A
// line has at most some hundred bytes, without control characters. Call it once, after glog is initialized.
void LimitGrpcLog();

}  // namespace catchment

#endif  // CATCHMENT_COMMON_PROGRAM_LOG_FORMAT_H_
