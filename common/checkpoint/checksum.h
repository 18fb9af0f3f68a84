// CRC-32 as computed by zlib, and its form in files: eight hexadecimal digits.
#ifndef CATCHMENT_COMMON_CHECKPOINT_CHECKSUM_H_
#define CATCHMENT_COMMON_CHECKPOINT_CHECKSUM_H_

#include <zlib.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace catchment {

// Returns the checksum of `size` bytes that follow bytes with the checksum `before`.
inline uint32_t Crc32(const void* data, size_t size, uint32_t before = 0) {
  return static_cast<uint32_t>(crc32_z(before, static_cast<const Bytef*>(data), size));
}

inline std::string ChecksumText(uint32_t checksum) {
  return absl::StrCat(absl::Hex(checksum, absl::kZeroPad8));
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_CHECKSUM_H_
