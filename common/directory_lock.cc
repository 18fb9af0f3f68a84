#include "common/directory_lock.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

constexpr char kFile[] = "/master.lock";

std::string ThisProcess() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, " ", getpid(), "\n");
}

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

// Writes the content, which is used only in the messages of other processes. A full disk is therefore no
// error.
void WriteOwner(int fd, const std::string& path) {
  const std::string owner = ThisProcess();
  const bool written = ftruncate(fd, 0) == 0 &&
                       pwrite(fd, owner.data(), owner.size(), 0) == static_cast<ssize_t>(owner.size());
  LOG_IF(WARNING, !written) << "cannot write host and pid to " << path << ": " << std::strerror(errno);
}

bool HasNoLocks(int error) {
  return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
}

}  // namespace

absl::StatusOr<DirectoryLock> DirectoryLock::Take(const std::string& directory) {
  return Take(directory, [](int fd, int operation) { return ::flock(fd, operation); });
}

absl::StatusOr<DirectoryLock> DirectoryLock::Take(const std::string& directory, const Flock& flock) {
  const std::string path = directory + kFile;
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  DirectoryLock lock(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
    WriteOwner(fd, path);
    return lock;
  }
  const int error = errno;
  if (HasNoLocks(error)) {
    LOG(WARNING) << "the file system of " << directory << " has no locks (" << std::strerror(error)
                 << "): make sure that no other master writes there";
    return lock;
  }
  if (error != EWOULDBLOCK) return absl::ErrnoToStatus(error, absl::StrCat("cannot lock ", path));
  return absl::FailedPreconditionError(
      absl::StrCat(directory, " is in use by another master", DescribeOwner(fd),
                   ": wait until it has ended, or choose another directory"));
}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace catchment
