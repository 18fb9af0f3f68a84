// What the main functions of the daemons share.
#ifndef CATCHMENT_COMMON_DAEMON_H_
#define CATCHMENT_COMMON_DAEMON_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "common/rpc.h"

namespace catchment {

// --tls_ca, --tls_cert and --tls_key, once flags are parsed.
TlsFiles TlsFilesFromFlags();

// Sets the process up (as many open files as the hard limit allows, logs to standard error, signals held for
// a SignalThread, flags parsed; --help shows `usage` and the daemon's own flags, --version what was built),
// runs `run`, and gives main's exit code: 1 with the reason as the last line on standard error where it
// failed.
int RunDaemon(int argc, char** argv, const std::string& usage, const std::function<absl::Status()>& run);

// Delivers SIGTERM, SIGINT and SIGHUP on a separate thread, which may call any function. SIGHUP stays ignored
// in a process that was started with it ignored (nohup).
// Blocks the signals until a SignalThread waits for them. Call it first in main(), before any thread is
// started.
void BlockSignals();

// Calls `on_signal` for every SIGTERM, SIGINT and SIGHUP, from construction to destruction.
class SignalThread {
 public:
  explicit SignalThread(std::function<void(int signal)> on_signal);
  ~SignalThread();

 private:
  const std::function<void(int)> on_signal_;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_DAEMON_H_
