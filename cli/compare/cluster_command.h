// Commands of a cluster's software, such as sbatch and kubectl, which a launcher executes.
#ifndef CATCHMENT_CLI_COMPARE_CLUSTER_COMMAND_H_
#define CATCHMENT_CLI_COMPARE_CLUSTER_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/base/process.h"
#include "common/base/clock.h"

namespace catchment {

inline constexpr double kCommandSeconds = 120;  // for a command to end
inline constexpr int kQuotedLines = 8;          // of an output or a log, in messages

// Returns the path of a program in $PATH; empty if there is none.
std::string FindInPath(const std::string& program);

// Executes a command and returns its output, which is also written to the file `log`. Unavailable if it fails
// or does not end within `seconds`, with the last lines of its output.
absl::StatusOr<std::string> Execute(const std::vector<std::string>& argv, const std::string& log,
                                    double seconds = kCommandSeconds);

// Returns lines, each indented on a line of its own, after a line break.
std::string Quote(const std::vector<std::string>& lines);

// Returns the next request to end the command within `seconds`; 0 if there is none.
int AwaitRequestToEnd(double seconds, const Clock& clock, SignalWaiter* signals);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_CLUSTER_COMMAND_H_
