// A lock that prevents two processes from writing to the same directory.
#ifndef CATCHMENT_COMMON_BASE_DIRECTORY_LOCK_H_
#define CATCHMENT_COMMON_BASE_DIRECTORY_LOCK_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace catchment {

// Describes the process that locks a directory.
struct LockUser {
  std::string file = "master.lock";     // in the directory
  std::string name = "another master";  // of another one, in errors
};

// Holds a file in a directory, whose content is "HOST PID", until it is destroyed or the process ends in any
// way. The lock is one of the kernel, of the open file description (fcntl's F_OFD_SETLK). Only those who may
// write to the directory may open the file, because a reader's lock would keep this one from being taken. The
// file is not deleted.
class DirectoryLock {
 public:
  // Locks the whole file that is open for writing, without waiting; returns -1 with errno if it cannot.
  using LockFile = std::function<int(int fd)>;

  // Takes the lock. Errors: FailedPrecondition, naming directory, host and pid, if another process holds it;
  // the errors of OpenFile. Only logs a warning if the file system does not support locks.
  static absl::StatusOr<DirectoryLock> Take(const std::string& directory, const LockUser& user = {});
  // For tests: uses `lock_file` instead of the system call.
  static absl::StatusOr<DirectoryLock> Take(const std::string& directory, const LockUser& user,
                                            const LockFile& lock_file);

  // Locks `directory` for the process that has started this one, through its file number `fd`, open for
  // reading and writing: the lock lasts until the caller and the processes that inherit the file have closed
  // it. Errors: InvalidArgument if there is no such file; those of Take.
  static absl::Status TakeForCaller(const std::string& directory, int fd, const LockUser& user);

  ~DirectoryLock();
  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&&) = delete;

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  // Locks the open file for the process `owner`.
  static absl::Status Lock(int fd, const std::string& directory, const LockUser& user, int owner,
                           const LockFile& lock_file);

  int fd_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_DIRECTORY_LOCK_H_
