#include <cstring>

#include "common/codec/formats.h"

namespace catchment {
namespace {

bool Copy(const char* __restrict bytes, size_t n, float* __restrict out) {
  uint32_t non_finite = 0;
  for (size_t i = 0; i < n; ++i) {
    float value;
    std::memcpy(&value, bytes + sizeof(float) * i, sizeof(float));
    non_finite |= !IsUsable(value);
    out[i] = value;
  }
  return non_finite == 0;
}

}  // namespace

bool DecodeFloat32(const PayloadView& payload, float* out) {
  bool finite = true;
  ForEachRun<sizeof(float)>(payload, [&](const char* bytes, size_t count) {
    finite &= Copy(bytes, count, out);
    out += count;
  });
  return finite;
}

}  // namespace catchment
