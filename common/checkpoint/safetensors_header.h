// The header of a safetensors file, with its tensors, their positions, and metadata.
//
//   8 bytes    N, the header's length, little-endian
//   N bytes    JSON: {"__metadata__": {KEY: TEXT, ...},
//                     NAME: {"dtype": "F32", "shape": [32, 1, 3, 3], "data_offsets": [BEGIN, END]}, ...},
//              padded with spaces to a multiple of 8
//   the rest   the tensors' values, without gaps; offsets count bytes from here
//
// Source: https://github.com/huggingface/safetensors, "Format". Difference: only F32 is written and read.
#ifndef CATCHMENT_COMMON_CHECKPOINT_SAFETENSORS_HEADER_H_
#define CATCHMENT_COMMON_CHECKPOINT_SAFETENSORS_HEADER_H_

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace catchment {

struct TensorEntry {
  std::string name;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes from the first value of the file
  int64_t size = 0;   // values
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their values
  std::map<std::string, std::string> metadata;
};

// The limit of the reference implementation.
constexpr size_t kMaxHeaderBytes = 100000000;

// Returns the JSON with its padding. InvalidArgument, naming the tensor, if two tensors have the same name,
// of which readers would find only one, or a name is not UTF-8 or "__metadata__". Metadata must be UTF-8.
absl::StatusOr<std::string> FormatHeader(const SafetensorsHeader& header);

// Parses a header, `text`. `data_bytes` is the size of the file without length and header. InvalidArgument if
// the header does not describe exactly these bytes.
absl::StatusOr<SafetensorsHeader> ParseHeader(const std::string& text, int64_t data_bytes);

// CRC-32 as computed by zlib, and its form in files: eight hexadecimal digits.

// Returns the checksum of `size` bytes that follow bytes with the checksum `before`.
inline uint32_t Crc32(const void* data, size_t size, uint32_t before = 0) {
  return static_cast<uint32_t>(crc32_z(before, static_cast<const Bytef*>(data), size));
}

inline std::string ChecksumText(uint32_t checksum) {
  return absl::StrCat(absl::Hex(checksum, absl::kZeroPad8));
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_SAFETENSORS_HEADER_H_
