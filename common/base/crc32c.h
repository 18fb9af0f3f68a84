// CRC-32C: the cyclic redundancy check with Castagnoli's polynomial 0x1EDC6F41, bits reflected (RFC 3720,
// appendix B.4), computed by an instruction of SSE 4.2, which all processors with AVX2 have.
#ifndef CATCHMENT_COMMON_BASE_CRC32C_H_
#define CATCHMENT_COMMON_BASE_CRC32C_H_

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace catchment {

inline uint32_t Crc32c(std::string_view data) {
  uint64_t crc = 0xffffffff;
  for (; data.size() >= sizeof(uint64_t); data.remove_prefix(sizeof(uint64_t))) {
    uint64_t eight;
    std::memcpy(&eight, data.data(), sizeof(eight));
    crc = _mm_crc32_u64(crc, eight);
  }
  auto rest = static_cast<uint32_t>(crc);
  for (const char c : data) rest = _mm_crc32_u8(rest, static_cast<uint8_t>(c));
  return ~rest;
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_CRC32C_H_
