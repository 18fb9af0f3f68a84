#include "common/base/open_files.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <limits>

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

// Files for logs, checkpoints, libraries and gRPC, and connections of clients that poll the status.
constexpr int64_t kOwnFiles = 50;

}  // namespace

void RaiseOpenFiles() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void KeepFilesPrivate() { umask(umask(0) | 027); }

int64_t OpenFilesLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<int64_t>::max();
  }
  return static_cast<int64_t>(limit.rlim_cur);
}

int64_t OpenFilesNeeded(int64_t workers, int64_t servers, bool master) {
  return kOwnFiles + (master ? 2 * workers + servers : workers);
}

absl::Status CheckOpenFiles(int64_t workers, int64_t servers, bool master) {
  const int64_t needed = OpenFilesNeeded(workers, servers, master), limit = OpenFilesLimit();
  if (needed <= limit) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("a server of a job with workers: ", workers, " needs about ", needed,
                   " open files, and this process may have ", limit, " (RLIMIT_NOFILE): ", kOpenFilesRemedy));
}

}  // namespace catchment
