// A directory that is deleted with its object.
#ifndef CATCHMENT_CLI_LOCAL_TEMPORARY_DIRECTORY_H_
#define CATCHMENT_CLI_LOCAL_TEMPORARY_DIRECTORY_H_

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace catchment {

class TemporaryDirectory {
 public:
  // Creates NAME-XXXXXX, with a random character for each X, in the system's directory for temporary files.
  // Errors: the system's.
  static absl::StatusOr<TemporaryDirectory> Create(const std::string& name) {
    std::string path = (std::filesystem::temp_directory_path() / (name + "-XXXXXX")).string();
    if (mkdtemp(path.data()) != nullptr) return TemporaryDirectory(path);
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot create the temporary directory ", path));
  }
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  TemporaryDirectory& operator=(TemporaryDirectory&& other) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}

  std::string path_;  // empty: moved from
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_LOCAL_TEMPORARY_DIRECTORY_H_
