// A file to which records are appended, each as a whole: what a full disk has left of one is taken back, as
// it would spoil the next.
#ifndef CATCHMENT_SERVER_OUTPUTS_APPENDED_FILE_H_
#define CATCHMENT_SERVER_OUTPUTS_APPENDED_FILE_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace catchment {

// Threads: one. Errors: name the file.
class AppendedFile {
 public:
  // Takes `descriptor` over, which writes to the file at `path`.
  AppendedFile(std::string path, int descriptor) : path_(std::move(path)), file_(descriptor) {}
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  // Opens a file of lines, which need not exist. A last line without its end, which a process left that was
  // killed while it wrote, is removed.
  static absl::StatusOr<std::unique_ptr<AppendedFile>> OpenLines(const std::string& path);

  absl::Status Append(std::string_view record);

  const std::string& path() const { return path_; }

 private:
  absl::Status RemoveUnfinishedLine();

  const std::string path_;
  const int file_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OUTPUTS_APPENDED_FILE_H_
