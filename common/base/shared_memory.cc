#include "common/base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

absl::Status Failure(int error, const std::string& name, int64_t bytes) {
  const absl::Status status =
      absl::ErrnoToStatus(error, absl::StrCat("no shared memory of ", bytes, " bytes for the ", name));
  if (error != ENOMEM) return status;
  return absl::ResourceExhaustedError(status.message());
}

}  // namespace

absl::StatusOr<SharedMemory> SharedMemory::Create(const std::string& name, int64_t bytes,
                                                  WithoutMemfd without) {
  ASSIGN_OR_RETURN(const int fd, CreateMemoryFile(name, bytes, without));
  void* data = MAP_FAILED;
  // A program that made it shorter would end its worker with SIGBUS.
  if (!IsMemfd(fd) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data != MAP_FAILED) return SharedMemory(fd, static_cast<char*>(data), bytes);
  const int error = errno;
  close(fd);
  return Failure(error, name, bytes);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), data_(other.data_), bytes_(other.bytes_) {}

SharedMemory::~SharedMemory() {
  if (fd_ < 0) return;
  munmap(data_, bytes_);
  close(fd_);
}

}  // namespace catchment
