// A file to which records are appended atomically: if the disk is full, the part of a record that was written
// is removed, because it would corrupt the next one.
#ifndef CATCHMENT_SERVER_OUTPUTS_APPENDED_FILE_H_
#define CATCHMENT_SERVER_OUTPUTS_APPENDED_FILE_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace catchment {

// Threads: not thread-safe. Errors: name the file.
class AppendedFile {
 public:
  // Takes ownership of `descriptor`, which must be open for writing to the file at `path`.
  AppendedFile(std::string path, int descriptor) : path_(std::move(path)), file_(descriptor) {}
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  // Opens a file of lines, and creates it if necessary. Removes an incomplete last line, which a process
  // leaves if it is killed while writing.
  static absl::StatusOr<std::unique_ptr<AppendedFile>> OpenLines(const std::string& path);

  // Appends the record completely, or not at all.
  absl::Status Append(std::string_view record);

  const std::string& path() const { return path_; }

 private:
  absl::Status RemoveUnfinishedLine();

  const std::string path_;
  const int file_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OUTPUTS_APPENDED_FILE_H_
