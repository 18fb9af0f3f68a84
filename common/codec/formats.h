// The formats of payloads whose values all have the same size: float32, bfloat16 and float16; and what the
// codecs share.
//
// `payload` has the size of a whole number of values, and `out` has room for all of them. Decoders return
// true if all values are usable (IsUsable).
// Threads: pure functions.
#ifndef CATCHMENT_COMMON_CODEC_FORMATS_H_
#define CATCHMENT_COMMON_CODEC_FORMATS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/types/span.h"
#include "common/wire/block_frame.h"

namespace catchment {

// Float32: the bytes of the values. There is nothing to encode.
bool DecodeFloat32(const PayloadView& payload, float* out);

// Bfloat16: the upper half of each float32, rounded to the nearest, ties to even. Values have eight
// significant bits and the range of float32: 2 bytes, relative error at most 2^-8. NaN stays NaN. Magnitudes
// of 3.396e38 and more become infinity, as IEEE 754 rounds them.
// Source: Burgess et al. 2019, "Bfloat16 processing for neural networks"; Kalamkar et al. 2019,
// arXiv:1905.12322.
void EncodeBfloat16(absl::Span<const float> values, char* out);
bool DecodeBfloat16(const PayloadView& payload, float* out);

// Float16 (IEEE 754 binary16) with one scale for the block: number = value / scale, rounded to the nearest,
// ties to even; value = number * scale. 2 bytes for each value.
//
//   scale = 2^(E - 14)    where 2^E <= max |value| < 2^(E + 1)
//
// So the largest number is in [2^14, 2^15): nothing overflows, whatever the factor of a gradient (a loss
// scale, for example). Values down to 2^-28 of the largest keep eleven significant bits (relative error at
// most 2^-11); smaller ones lose bits one by one, and values below 2^-40 of the largest become 0. Only NaN
// and infinity become NaN and infinity. At the ends of float32's range, the scale is at least 2^-126 (values
// below 2^-112 are exact with it), and a block with a magnitude of 2^127 or more is rounded toward zero,
// since the nearest value could be 2^128.
// Source: Micikevicius et al. 2018, "Mixed precision training", arXiv:1710.03740, whose loss scale moves
// small gradients into float16's range; here each block has its own scale, chosen from its values.

// Returns the scale of a block, a power of two; 1 if all values are zero.
float ScaleForFloat16(absl::Span<const float> values);
// `scale` is that of the values.
void EncodeFloat16(absl::Span<const float> values, float scale, char* out);
bool DecodeFloat16(const PayloadView& payload, float scale, float* out);

inline constexpr uint32_t kInfinityBits = 0x7f800000;

// Returns bits that are ordered like |x|, with infinity above all numbers and NaN above infinity.
inline uint32_t MagnitudeBits(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffff; }

inline bool IsFinite(float x) { return MagnitudeBits(x) < kInfinityBits; }

// Magnitudes of 2^63 and more count as infinite in what a peer sends: the square of a smaller one is a
// float32, so that no single contribution makes the state of an optimizer infinite.
inline constexpr uint32_t kTooLargeBits = 0x5f000000;
inline bool IsUsable(float x) { return MagnitudeBits(x) < kTooLargeBits; }

inline bool AreFinite(const float* values, int64_t size) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < size; ++i) largest = std::max(largest, MagnitudeBits(values[i]));
  return largest < kInfinityBits;
}

// Payloads are little-endian, and so must be the machine.
static_assert(std::endian::native == std::endian::little);

// Calls convert(const char* bytes, size_t count) for runs of `count` consecutive values, unaligned, in order;
// a value that is divided between two pieces of the payload is a separate run. The payload's size is a
// multiple of kBytes.
template <size_t kBytes, typename Convert>
void ForEachRun(PayloadView payload, Convert convert) {
  while (payload.size() > 0) {
    const absl::string_view head = payload.front();
    if (const size_t count = head.size() / kBytes; count > 0) {
      convert(head.data(), count);
      payload.Skip(count * kBytes);
    } else {
      char one[kBytes];
      payload.Take(kBytes, one);
      convert(one, 1);
    }
  }
}

// Reads the first value of a payload and drops it. The payload has at least sizeof(T) bytes.
template <typename T>
T TakeOne(PayloadView* payload) {
  T value;
  if (const absl::string_view head = payload->front(); head.size() >= sizeof(T)) {
    std::memcpy(&value, head.data(), sizeof(T));
    payload->Skip(sizeof(T));
  } else {
    payload->Take(sizeof(T), &value);
  }
  return value;
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CODEC_FORMATS_H_
