// The limits of processes and threads: RLIMIT_NPROC counts those of a user (`ulimit -u`), and the cgroup
// controller `pids` those of a container, a Pod or a systemd unit. A process that meets one cannot start a
// thread, and may then fail or wait at any place.
#ifndef CATCHMENT_COMMON_BASE_THREAD_LIMIT_H_
#define CATCHMENT_COMMON_BASE_THREAD_LIMIT_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"

namespace catchment {

// Explains in error messages how to raise the limits.
inline constexpr char kThreadsRemedy[] =
    "raise it with `ulimit -u`, TasksMax= in a systemd unit, --pids-limit of a container, or the PID limit "
    "of a Pod, or start fewer processes";

// The tightest of the limits.
struct ThreadRoom {
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
  int64_t limit = kUnlimited;  // processes and threads
  int64_t used = 0;            // now
  std::string source;  // "RLIMIT_NPROC of user 1000", or "/sys/fs/cgroup/pids.max"; empty: there is none

  int64_t left() const { return limit == kUnlimited ? kUnlimited : limit - used; }
};

// Returns the limit that leaves the fewest threads. `root` is the directory with proc/ and sys/.
ThreadRoom FindThreadRoom(const std::string& root = "");

// Return the threads of a process, with those of gRPC. `threads`: those that compute in a worker.
int64_t ThreadsOfServer();
int64_t ThreadsOfWorker(int64_t threads);
// The threads of any process that uses gRPC.
inline constexpr int64_t kFewestThreads = 8;

// Returns FailedPrecondition, with the limit and how to raise it, if the `needed` threads of `who` ("this
// process") do not fit.
absl::Status CheckThreads(const ThreadRoom& room, const std::string& who, int64_t needed);

// Makes the process end with exit code 1 and a line that names the limit, instead of being aborted, where a
// thread cannot be started or memory not be allocated. `name` is that of the program. Call it before other
// threads are started.
void ExplainMissingResources(const std::string& name);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_THREAD_LIMIT_H_
