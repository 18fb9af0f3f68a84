#include "common/base/file_access.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

constexpr size_t kMaxNameBytes = 255;

// Returns true for a pipe that has no name in a file system.
bool IsUnnamedPipe(int file) {
  struct statfs system;
  return fstatfs(file, &system) == 0 && system.f_type == PIPEFS_MAGIC;
}

bool MayBeUsed(int file, mode_t mode, FileNamedBy named_by) {
  if (S_ISREG(mode)) return true;
  if (named_by == FileNamedBy::kDirectory) return false;
  return (S_ISFIFO(mode) && IsUnnamedPipe(file)) || isatty(file) == 1;
}

absl::Status NotRegular(const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
}

}  // namespace

absl::StatusOr<int> OpenFile(const std::string& path, int flags, FileNamedBy named_by, mode_t mode) {
  if (named_by == FileNamedBy::kDirectory && (flags & O_CREAT) != 0) flags |= O_NOFOLLOW;
  const int file = open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, mode);
  // A socket, or a named pipe without a reader; a directory that is opened for writing; a link that is not
  // followed.
  if (file < 0 && (errno == ENXIO || errno == EISDIR || (errno == ELOOP && (flags & O_NOFOLLOW) != 0)))
    return NotRegular(path);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  struct stat about;
  if (fstat(file, &about) != 0 || !MayBeUsed(file, about.st_mode, named_by)) {
    close(file);
    return NotRegular(path);
  }
  fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
  return file;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, FileNamedBy named_by) {
  ASSIGN_OR_RETURN(const int file, OpenFile(path, O_RDONLY, named_by));
  std::string content;
  char buffer[1 << 16];
  ssize_t count;
  while ((count = read(file, buffer, sizeof(buffer))) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    content.append(buffer, count);
  }
  const int error = errno;
  close(file);
  if (count < 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", path));
  return content;
}

bool IsFileName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isprint(c) && c != '/'; });
}

absl::StatusOr<std::string> PathWithin(const std::string& directory, absl::string_view name) {
  if (IsFileName(name)) return absl::StrCat(directory, "/", name);
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(name), "\" is not the name of a file in ", directory));
}

}  // namespace catchment
