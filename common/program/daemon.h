// The common parts of the daemons' main functions.
#ifndef CATCHMENT_COMMON_PROGRAM_DAEMON_H_
#define CATCHMENT_COMMON_PROGRAM_DAEMON_H_

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/metrics/endpoint.h"
#include "common/program/command_line.h"

namespace catchment {

// The reason and the code with which a daemon exits. Its last line on standard error has both.
struct DaemonEnd {
  std::string reason;
  int exit_code = 0;
};

// Prepares the process, parses the command line, calls `run`, and ends the process, whose static objects are
// not destroyed. The exit code is that of RunCommandLine (common/program/command_line.h), so that a
// supervisor can tell a wrong command line, which is wrong again, from another error, or that of the end.
// Preparing raises the limit of open files to the hard limit, sends logs to standard error, in the format of
// --log_format, ignores SIGHUP, blocks signals for a SignalThread, serves metrics at --metrics_port, and
// writes a trace to the directory --trace; it adds these flags. --help prints the help and --version the
// version, followed by the lines that `features`, if given, returns.
[[noreturn]] void RunDaemon(int argc, char** argv, CommandLine* line,
                            const std::function<absl::StatusOr<DaemonEnd>(MetricsEndpoint* metrics)>& run,
                            const std::function<std::string()>& features = nullptr);

// Blocks the EndingSignals (common/program/ending_signals.h) until a SignalThread waits for them. Call it at
// the beginning of main(), before any thread is started.
void BlockSignals();

// Calls `on_signal` for every one of the EndingSignals but SIGUSR1 and SIGUSR2, which it only logs, from
// construction to destruction, on a separate thread, which may call any function.
class SignalThread {
 public:
  explicit SignalThread(std::function<void(int signal)> on_signal);
  ~SignalThread();

 private:
  const std::function<void(int)> on_signal_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_PROGRAM_DAEMON_H_
