#include <cstring>

#include "common/codec/formats.h"

namespace catchment {
namespace {

uint16_t Round(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t to_even = bits >> 16 & 1;
  const uint32_t nearest = bits + 0x7fff + to_even;
  // A NaN that has only low bits set would become infinity, so it is made a quiet NaN.
  const uint32_t quiet = bits | 0x400000;
  return static_cast<uint16_t>((value != value ? quiet : nearest) >> 16);
}

bool Widen(const char* __restrict bytes, size_t n, float* __restrict out) {
  uint32_t non_finite = 0;
  for (size_t i = 0; i < n; ++i) {
    uint16_t upper;
    std::memcpy(&upper, bytes + sizeof(upper) * i, sizeof(upper));
    const float value = std::bit_cast<float>(static_cast<uint32_t>(upper) << 16);
    non_finite |= !IsUsable(value);
    out[i] = value;
  }
  return non_finite == 0;
}

}  // namespace

void EncodeBfloat16(absl::Span<const float> values, char* out) {
  const float* __restrict in = values.data();
  char* __restrict to = out;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t rounded = Round(in[i]);
    std::memcpy(to + sizeof(rounded) * i, &rounded, sizeof(rounded));
  }
}

bool DecodeBfloat16(const PayloadView& payload, float* out) {
  bool finite = true;
  ForEachRun<sizeof(uint16_t)>(payload, [&](const char* bytes, size_t count) {
    finite &= Widen(bytes, count, out);
    out += count;
  });
  return finite;
}

}  // namespace catchment
