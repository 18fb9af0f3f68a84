#include "worker/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/file_access.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

absl::Status Failed(const std::string& path, int error) {
  return absl::InternalError(absl::StrCat(path, ": ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const int file, OpenFile(path, O_RDONLY));
  struct stat about;
  absl::Status status = fstat(file, &about) == 0 ? absl::OkStatus() : Failed(path, errno);
  void* data = nullptr;
  if (status.ok() && about.st_size > 0) {
    data = mmap(nullptr, about.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED) status = Failed(path, errno);
  }
  close(file);
  RETURN_IF_ERROR(status);
  return std::shared_ptr<const MappedFile>(new MappedFile(static_cast<const char*>(data), about.st_size));
}

MappedFile::~MappedFile() {
  if (size_ > 0) munmap(const_cast<char*>(data_), size_);
}

}  // namespace catchment
