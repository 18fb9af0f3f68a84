// Keeps a second process from writing where one writes already.
#ifndef CATCHMENT_COMMON_DIRECTORY_LOCK_H_
#define CATCHMENT_COMMON_DIRECTORY_LOCK_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace catchment {

// Holds DIRECTORY/master.lock, whose content is "HOST PID", until it is destroyed or the process ends,
// also by a signal: the lock is the kernel's (flock), and the file stays.
class DirectoryLock {
 public:
  using Flock = std::function<int(int fd, int operation)>;

  // Errors: FailedPrecondition when another process has it, naming directory, host and pid; those of opening
  // the file. Where the file system has no locks it only warns.
  static absl::StatusOr<DirectoryLock> Take(const std::string& directory);
  // `flock`: in place of the system's, for tests.
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
