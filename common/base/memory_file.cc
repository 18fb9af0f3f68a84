#include "common/base/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace catchment {
namespace {

std::string Failure(int64_t bytes, const std::string& name) {
  return absl::StrCat("no shared memory of ", bytes, " bytes for the ", name);
}

std::vector<std::string> Directories() {
  std::vector<std::string> all;
  for (const char* const one : {"/dev/shm", static_cast<const char*>(std::getenv("TMPDIR")), "/tmp"}) {
    if (one != nullptr && *one != 0) all.emplace_back(one);
  }
  return all;
}

// Returns the error number.
int CreateIn(const std::string& directory, const std::string& name, int64_t bytes, int* file) {
  std::string path = absl::StrCat(directory, "/catchment-", name, "-XXXXXX");
  *file = mkostemp(path.data(), O_CLOEXEC);
  if (*file < 0) return errno;
  unlink(path.c_str());
  const int error = posix_fallocate(*file, 0, bytes);
  if (error != 0) close(*file);
  return error;
}

absl::StatusOr<int> CreateFile(const std::string& name, int64_t bytes, const std::string& why) {
  std::string tried;
  for (const std::string& directory : Directories()) {
    int file = -1;
    const int error = CreateIn(directory, name, bytes, &file);
    if (error == 0) return file;
    absl::StrAppend(&tried, tried.empty() ? "" : ", ", directory, " (", std::strerror(error), ")");
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(why, ", and no file can take its place in ", tried,
                   "; permit memfd_create, or set TMPDIR to a directory with room"));
}

}  // namespace

absl::StatusOr<int> CreateMemoryFile(const std::string& name, int64_t bytes, WithoutMemfd without) {
  // ftruncate would end the process with SIGXFSZ.
  if (rlimit limit; getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(bytes))
    return absl::ResourceExhaustedError(absl::StrCat(Failure(bytes, name), ": ulimit -f is lower"));
  const int file = memfd_create(absl::StrCat("catchment-", name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) {
    const int error = errno;
    const std::string why =
        absl::StrCat(Failure(bytes, name), ": memfd_create failed (", std::strerror(error),
                     "), which a seccomp filter or a sandbox may cause");
    if (without == WithoutMemfd::kUseFile) return CreateFile(name, bytes, why);
    return absl::Status(absl::ErrnoToStatus(error, "").code(), why);
  }
  const absl::Status status = ResizeMemoryFile(file, bytes);
  if (status.ok()) return file;
  close(file);
  return absl::Status(status.code(), absl::StrCat(Failure(bytes, name), ": ", status.message()));
}

absl::Status ResizeMemoryFile(int file, int64_t bytes) {
  int error = ftruncate(file, bytes) == 0 ? 0 : errno;
  if (error == 0 && !IsMemfd(file)) error = posix_fallocate(file, 0, bytes);
  return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, "cannot set its size");
}

bool IsMemfd(int file) {
  char target[64];
  const ssize_t length = readlink(absl::StrCat("/proc/self/fd/", file).c_str(), target, sizeof(target));
  return length > 0 && absl::StartsWith(absl::string_view(target, length), "/memfd:");
}

}  // namespace catchment
