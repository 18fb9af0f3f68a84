// A directory that is deleted with its object.
#ifndef CATCHMENT_CLI_BASE_TEMPORARY_DIRECTORY_H_
#define CATCHMENT_CLI_BASE_TEMPORARY_DIRECTORY_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/directory_lock.h"

namespace catchment {

// Has mode 0700, and a lock file that the process holds. The directory of a process that was killed stays
// until a command of the same user and machine creates another one, in the same parent or in another place in
// which commands do.
class TemporaryDirectory {
 public:
  // Creates NAME-XXXXXX, with a random character for each X, in the system's directory for temporary files.
  // `name` begins with "catchment". Errors: the system's.
  static absl::StatusOr<TemporaryDirectory> Create(const std::string& name);
  // Does the same in the directory `parent`.
  static absl::StatusOr<TemporaryDirectory> CreateIn(const std::string& parent, const std::string& name);

  TemporaryDirectory(TemporaryDirectory&& other) noexcept
      : path_(std::exchange(other.path_, "")), lock_(std::move(other.lock_)) {}
  TemporaryDirectory& operator=(TemporaryDirectory&& other) = delete;
  ~TemporaryDirectory();

  const std::string& path() const { return path_; }

 private:
  TemporaryDirectory(std::string path, DirectoryLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;  // empty: moved from
  DirectoryLock lock_;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_BASE_TEMPORARY_DIRECTORY_H_
