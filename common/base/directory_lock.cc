#include "common/base/directory_lock.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/file_access.h"
#include "common/base/machine.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

// Returns "on host node1 with pid 7", or less if the other process has not written it yet.
std::string DescribeOwner(int fd) {
  char text[512] = "";
  const ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
  const std::string owner(text, size < 0 ? 0 : size);
  const size_t space = owner.find(' ');
  const size_t end = owner.find('\n');
  if (space == std::string::npos || end == std::string::npos) return "";
  return absl::StrCat(" on host ", owner.substr(0, space), " with pid ",
                      owner.substr(space + 1, end - space - 1));
}

// Writes the content, which is used only in the messages of other processes. A full disk is therefore not
// an error.
void WriteOwner(int fd, const std::string& path, int process) {
  const std::string owner = absl::StrCat(HostName(), " ", process, "\n");
  const bool written = ftruncate(fd, 0) == 0 &&
                       pwrite(fd, owner.data(), owner.size(), 0) == static_cast<ssize_t>(owner.size());
  LOG_IF(WARNING, !written) << "cannot write host and pid to " << path << ": " << std::strerror(errno);
}

// Returns true if the file may be a user's: it has text, and no owner's, not even the beginning of one.
bool IsForeign(int fd) {
  char text[512] = "";
  const ssize_t size = pread(fd, text, sizeof(text), 0);
  if (size <= 0) return false;
  struct stat about;
  const std::string owner(text, size);
  const size_t space = owner.find(' ');
  const bool names_process = space != std::string::npos && space > 0 &&
                             owner.find_first_not_of("0123456789\n", space + 1) == std::string::npos;
  return !names_process || fstat(fd, &about) != 0 || about.st_size != size;
}

// Lets those use the file who may write to the directory, and no others.
void ShareWithWriters(int fd, const std::string& directory) {
  struct stat of_directory, of_file;
  if (stat(directory.c_str(), &of_directory) != 0 || fstat(fd, &of_file) != 0) return;
  mode_t mode = S_IRUSR | S_IWUSR;
  if ((of_directory.st_mode & S_IWGRP) != 0) mode |= S_IRGRP | S_IWGRP;
  const bool is_sticky = (of_directory.st_mode & S_ISVTX) != 0;
  if ((of_directory.st_mode & S_IWOTH) != 0 && !is_sticky) mode |= S_IROTH | S_IWOTH;
  // Fails for a file of another user, who has set its mode.
  if ((of_file.st_mode & ALLPERMS) != mode && fchmod(fd, mode) != 0) return;
}

int LockForWriting(int fd) {
  struct flock whole_file = {};
  whole_file.l_type = F_WRLCK;
  whole_file.l_whence = SEEK_SET;
  return fcntl(fd, F_OFD_SETLK, &whole_file);
}

bool IsHeld(int error) { return error == EAGAIN || error == EACCES; }

bool HasNoLocks(int error) {
  return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
}

}  // namespace

absl::StatusOr<DirectoryLock> DirectoryLock::Take(const std::string& directory, const LockUser& user) {
  return Take(directory, user, LockForWriting);
}

absl::StatusOr<DirectoryLock> DirectoryLock::Take(const std::string& directory, const LockUser& user,
                                                  const LockFile& lock_file) {
  const std::string path = absl::StrCat(directory, "/", user.file);
  ASSIGN_OR_RETURN(const int fd,
                   OpenFile(path, O_RDWR | O_CREAT, FileNamedBy::kDirectory, S_IRUSR | S_IWUSR));
  DirectoryLock lock(fd);
  RETURN_IF_ERROR(Lock(fd, directory, user, getpid(), lock_file));
  return lock;
}

absl::Status DirectoryLock::TakeForCaller(const std::string& directory, int fd, const LockUser& user) {
  if (fcntl(fd, F_GETFD) < 0)
    return absl::InvalidArgumentError(absl::StrCat("the caller has no open file with number ", fd));
  return Lock(fd, directory, user, getppid(), LockForWriting);
}

absl::Status DirectoryLock::Lock(int fd, const std::string& directory, const LockUser& user, int owner,
                                 const LockFile& lock_file) {
  const std::string path = absl::StrCat(directory, "/", user.file);
  if (IsForeign(fd)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " was not written by Catchment: move it, or choose another directory"));
  }
  ShareWithWriters(fd, directory);
  if (lock_file(fd) == 0) {
    WriteOwner(fd, path, owner);
    return absl::OkStatus();
  }
  const int error = errno;
  if (HasNoLocks(error)) {
    LOG(WARNING) << "the file system of " << directory << " has no locks (" << std::strerror(error)
                 << "): make sure that no other process writes there";
    return absl::OkStatus();
  }
  if (!IsHeld(error)) return absl::ErrnoToStatus(error, absl::StrCat("cannot lock ", path));
  return absl::FailedPreconditionError(
      absl::StrCat(directory, " is in use by ", user.name, DescribeOwner(fd),
                   ": wait until it has ended, or choose another directory"));
}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace catchment
