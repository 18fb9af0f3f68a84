// Checks every few seconds that new connections to the process's own port are still accepted. gRPC 1.51 stops
// accepting forever when the process runs out of open files (CVE-2023-4785): open connections continue, and
// the kernel still completes new ones, but the process never accepts them and logs nothing.
#ifndef CATCHMENT_COMMON_PORT_WATCH_H_
#define CATCHMENT_COMMON_PORT_WATCH_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "common/rpc.h"

namespace catchment {

// Threads: safe; it has its own thread.
class PortWatch {
 public:
  struct Options {
    double check_seconds = 5;     // between two checks
    double connect_seconds = 10;  // for a connection; enough also for a busy process
  };
  // The number of consecutive connections that must fail. A failure because the process has no file
  // descriptor does not count, nor do failures before the first success: the process may not be able to reach
  // itself under this address.
  static constexpr int kFailures = 3;

  // `address`: HOST:PORT, where the process listens. on_lost is called once, on the watch's thread, with an
  // Unavailable status that gives the remedy.
  PortWatch(std::string address, std::shared_ptr<grpc::ChannelCredentials> credentials,
            const Options& options, std::function<void(const absl::Status&)> on_lost);
  ~PortWatch() { End().IgnoreError(); }

  // Returns true if a connection has succeeded.
  bool reached();
  // Ends the watch; call it before the port is closed. Returns OK, or the status that on_lost received.
  absl::Status End();

 private:
  void Run();
  // Returns true when the watch ends.
  bool Pause();

  const std::string address_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const Options options_;
  const std::function<void(const absl::Status&)> on_lost_;
  Mutex mu_;
  CondVar changed_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool reached_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_PORT_WATCH_H_
