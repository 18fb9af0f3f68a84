// Memory that a program maps, too: anonymous (memory_file.h), gone when all who have it open are. Nobody can
// change its size, unless a file takes the place of a memfd.
#ifndef CATCHMENT_COMMON_BASE_SHARED_MEMORY_H_
#define CATCHMENT_COMMON_BASE_SHARED_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/memory_file.h"

namespace catchment {

// Threads: whoever uses the memory agrees on who writes when (proto/attach.proto).
class SharedMemory {
 public:
  // Creates `bytes` zeros, at least one. `name` is for errors and for /proc. Errors: those of
  // CreateMemoryFile.
  static absl::StatusOr<SharedMemory> Create(const std::string& name, int64_t bytes,
                                             WithoutMemfd without = WithoutMemfd::kFail);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) = delete;
  ~SharedMemory();

  // Returns the descriptor, which is closed when another program is executed, unless the child clears that.
  int fd() const { return fd_; }
  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Returns the offset of an address in the memory; nothing for other addresses.
  std::optional<uint64_t> OffsetOf(const void* address) const {
    const char* const place = static_cast<const char*>(address);
    if (place < data_ || place >= data_ + bytes_) return std::nullopt;
    return place - data_;
  }
  absl::Span<float> floats() const {
    return {reinterpret_cast<float*>(data_), static_cast<size_t>(bytes_) / sizeof(float)};
  }

 private:
  SharedMemory(int fd, char* data, int64_t bytes) : fd_(fd), data_(data), bytes_(bytes) {}

  int fd_ = -1;  // -1: moved from
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_SHARED_MEMORY_H_
