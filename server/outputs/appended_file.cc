#include "server/outputs/appended_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/file_access.h"
#include "common/base/status_macros.h"

namespace catchment {

AppendedFile::~AppendedFile() { close(file_); }

absl::StatusOr<std::unique_ptr<AppendedFile>> AppendedFile::OpenLines(const std::string& path) {
  ASSIGN_OR_RETURN(const int descriptor, OpenFile(path, O_RDWR | O_CREAT));
  auto file = std::make_unique<AppendedFile>(path, descriptor);
  RETURN_IF_ERROR(file->RemoveUnfinishedLine());
  return file;
}

absl::Status AppendedFile::RemoveUnfinishedLine() {
  std::array<char, 4096> bytes;
  const off_t size = lseek(file_, 0, SEEK_END);
  off_t end = size;  // an upper bound of the end of the last complete line
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(bytes.size()));
    const ssize_t count = pread(file_, bytes.data(), end - begin, begin);
    if (count != end - begin) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
    const size_t newline = std::string_view(bytes.data(), count).rfind('\n');
    end = newline == std::string_view::npos ? begin : begin + static_cast<off_t>(newline) + 1;
    if (newline != std::string_view::npos) break;
  }
  if (end == size || ftruncate(file_, end) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
}

absl::Status AppendedFile::Append(std::string_view record) {
  const off_t size = lseek(file_, 0, SEEK_END);
  const ssize_t written = pwrite(file_, record.data(), record.size(), size);
  if (written == static_cast<ssize_t>(record.size())) return absl::OkStatus();
  const int error = written < 0 ? errno : ENOSPC;
  if (ftruncate(file_, size) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove a part of a record from ", path_));
  }
  return absl::ErrnoToStatus(error, absl::StrCat("cannot write ", path_));
}

}  // namespace catchment
