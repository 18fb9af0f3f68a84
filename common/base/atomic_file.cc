#include "common/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <regex>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/file_access.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

std::string ParentDirectory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path, int64_t bytes) {
  return CreateAt(path, absl::StrCat(path, ".", FormatId(RandomId()), ".tmp"), bytes);
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::CreateAt(const std::string& path,
                                                                 const std::string& temporary,
                                                                 int64_t bytes) {
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", temporary));
  return std::unique_ptr<AtomicFile>(new AtomicFile(path, temporary, bytes, file));
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int64_t bytes, int file)
    : path_(std::move(path)), temporary_(std::move(temporary)), bytes_(bytes), file_(file) {}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) close(file_);
  if (!committed_) unlink(temporary_.c_str());
}

absl::Status AtomicFile::Failed(int error) const {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot write ", path_, ", which needs ", bytes_, " bytes"));
}

absl::Status AtomicFile::Write(const void* data, size_t size) {
  RETURN_IF_ERROR(WriteAt(data, size, end_));
  end_ += static_cast<int64_t>(size);
  return absl::OkStatus();
}

absl::Status AtomicFile::WriteAt(const void* data, size_t size, int64_t offset) {
  // The kernel takes at most 2 GiB in one call.
  constexpr size_t kMost = size_t{1} << 30;
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = pwrite(file_, next, std::min(size, kMost), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed(errno);
    next += written;
    offset += written;
    size -= written;
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (fsync(file_) != 0) return Failed(errno);
  if (close(std::exchange(file_, -1)) != 0) return Failed(errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return Failed(errno);
  committed_ = true;
  return SyncDirectory(ParentDirectory(path_));
}

absl::Status WriteAtomically(const std::string& path, const std::string& text) {
  ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path, static_cast<int64_t>(text.size())));
  RETURN_IF_ERROR(file->Write(text.data(), text.size()));
  return file->Commit();
}

absl::Status CopyAtomically(const std::string& from, const std::string& path) {
  ASSIGN_OR_RETURN(const int source, OpenFile(from, O_RDONLY));
  const absl::Cleanup close_source = [source] { close(source); };
  struct stat about;
  if (fstat(source, &about) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", from));
  ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path, about.st_size));
  std::vector<char> part(1 << 20);
  ssize_t count;
  while ((count = read(source, part.data(), part.size())) > 0) {
    RETURN_IF_ERROR(file->Write(part.data(), count));
  }
  if (count < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", from));
  return file->Commit();
}

void RemoveTemporaries(const std::string& directory) {
  static const std::regex kTemporary("..*\\.[0-9a-f]{16}\\.tmp");
  std::error_code error;
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (std::regex_match(entry.path().filename().string(), kTemporary)) found.push_back(entry.path());
  }
  for (const std::filesystem::path& path : found) std::filesystem::remove(path, error);
}

absl::Status CreateDirectories(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return absl::OkStatus();
  const std::string parent = ParentDirectory(path);
  if (parent != path && !std::filesystem::exists(parent, error)) {
    RETURN_IF_ERROR(CreateDirectories(parent));
  }
  // Another process may have created it in the meantime.
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot create the directory ", path));
  }
  if (!std::filesystem::is_directory(path, error)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " exists and is not a directory"));
  }
  return SyncDirectory(parent);
}

absl::Status SyncDirectory(const std::string& path) {
  const int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open the directory ", path));
  const bool synced = fsync(directory) == 0;
  const int error = errno;
  close(directory);
  // Some network file systems do not support syncing directories, and do not need it.
  if (!synced && error != EINVAL) {
    return absl::ErrnoToStatus(error, absl::StrCat("cannot sync the directory ", path));
  }
  return absl::OkStatus();
}

}  // namespace catchment
