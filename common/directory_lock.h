// A lock that prevents two processes from writing to the same directory.
#ifndef CATCHMENT_COMMON_DIRECTORY_LOCK_H_
#define CATCHMENT_COMMON_DIRECTORY_LOCK_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace catchment {

// Holds DIRECTORY/master.lock, whose content is "HOST PID", until it is destroyed or the process ends in any
// way. The lock is one of the kernel (flock); the file is not deleted.
class DirectoryLock {
 public:
  using Flock = std::function<int(int fd, int operation)>;

  // Takes the lock. Errors: FailedPrecondition, naming directory, host and pid, if another process holds it;
  // the errors of opening the file. Only logs a warning if the file system does not support locks.
  static absl::StatusOr<DirectoryLock> Take(const std::string& directory);
  // For tests: uses `flock` instead of the system call.
  static absl::StatusOr<DirectoryLock> Take(const std::string& directory, const Flock& flock);

  ~DirectoryLock();
  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&&) = delete;

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}

  int fd_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_DIRECTORY_LOCK_H_
