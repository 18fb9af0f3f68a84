#include "common/codec/scaled_groups.h"

#include <glog/logging.h>
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/codec/formats.h"

namespace catchment {
namespace {

constexpr GroupFormat kFormats[] = {
    {.codec = v1::Compression::INT8,
     .group = 256,
     .bits = 8,
     .largest = 127,
     .unit = 1,
     .thresholds = {},
     .numbers = {}},
    {.codec = v1::Compression::E2M1,
     .group = 128,
     .bits = 4,
     .largest = 6,
     .unit = 0.5f,
     .thresholds = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5},
     .numbers = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}},
    {.codec = v1::Compression::E3M0,
     .group = 128,
     .bits = 4,
     .largest = 1,
     .unit = 0x1p-6f,
     .thresholds = {0x1p-7f, 0.75f * 0x1p-5f, 0.75f * 0x1p-4f, 0.75f * 0x1p-3f, 0.75f * 0x1p-2f,
                    0.75f * 0x1p-1f, 0.75f},
     .numbers = {0, 1, 2, 4, 8, 16, 32, 64, 0, -1, -2, -4, -8, -16, -32, -64}},
};

constexpr int64_t kMaxGroup = 256;
// Smaller groups stay in the residual: products of their scales could be subnormal, hence inexact.
constexpr float kMinMagnitude = 0x1p-100f;

// The codes of a group, one in each byte, and its levels in units. They have room for whole vectors.
struct alignas(32) Bytes {
  uint8_t codes[kMaxGroup] = {};
  int8_t numbers[kMaxGroup] = {};
};

float LargestMagnitude(const float* __restrict gradient, float decay, const float* __restrict residual,
                       size_t n) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) {
    largest = std::max(largest, MagnitudeBits(decay * residual[i] + gradient[i]));
  }
  return std::bit_cast<float>(largest);
}

float ScaleOf(const GroupFormat& format, float largest_magnitude) {
  if (largest_magnitude < kMinMagnitude) return 0;
  const float scale = largest_magnitude / format.largest;
  return IsFinite(format.largest * scale) ? scale : std::numeric_limits<float>::quiet_NaN();
}

// Since u is s / 127 rounded once, |a / u| is below 127.5.
void RoundToIntegers(const float* __restrict values, float scale, size_t n, uint8_t* __restrict codes) {
  for (size_t i = 0; i < n; ++i) {
    codes[i] = static_cast<uint8_t>(static_cast<int>(std::rint(values[i] / scale)));
  }
}

void RoundToLevels(const std::array<float, 7>& thresholds, const float* __restrict values, float scale,
                   size_t n, uint8_t* __restrict codes) {
  float t[7];
  for (int k = 0; k < 7; ++k) t[k] = thresholds[k] * scale;
  for (size_t i = 0; i < n; ++i) {
    const float magnitude = std::fabs(values[i]);
    int code = values[i] <= -t[0] ? 8 : 0;
    for (int k = 0; k < 7; ++k) code += magnitude >= t[k] ? 1 : 0;
    codes[i] = static_cast<uint8_t>(code);
  }
}

// Packs two codes into a byte.
void PackHalves(const uint8_t* __restrict codes, size_t bytes, char* __restrict out) {
  for (size_t i = 0; i < bytes; ++i) {
    uint16_t pair;
    std::memcpy(&pair, codes + 2 * i, sizeof(pair));
    out[i] = static_cast<char>(pair | pair >> 4);
  }
}

void UnpackHalves(const char* __restrict bytes, size_t size, uint8_t* __restrict codes) {
  for (size_t i = 0; i < size; ++i) {
    const uint32_t byte = static_cast<uint8_t>(bytes[i]);
    const uint16_t pair = (byte | byte << 4) & 0x0f0f;
    std::memcpy(codes + 2 * i, &pair, sizeof(pair));
  }
}

// Uses intrinsics, because g++ 12 looks codes up one by one.
void LookUpNumbers(const std::array<int8_t, 16>& numbers, size_t n, Bytes* bytes) {
  const __m128i by_code = _mm_loadu_si128(reinterpret_cast<const __m128i*>(numbers.data()));
  const __m256i table = _mm256_broadcastsi128_si256(by_code);
  for (size_t i = 0; i < n; i += sizeof(__m256i)) {
    const __m256i codes = _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes->codes + i));
    _mm256_store_si256(reinterpret_cast<__m256i*>(bytes->numbers + i), _mm256_shuffle_epi8(table, codes));
  }
}

void NumbersOfCodes(const GroupFormat& format, size_t n, Bytes* bytes) {
  if (format.bits == 8) {
    std::memcpy(bytes->numbers, bytes->codes, n);
  } else {
    LookUpNumbers(format.numbers, n, bytes);
  }
}

// Writes the codes of a group, all 0 if the scale is 0 or NaN, to `bytes` and packed to `out`.
void EncodeGroup(const GroupFormat& format, const float* values, float scale, size_t n, Bytes* bytes,
                 char* out) {
  if (!(scale > 0)) {
    std::fill_n(bytes->codes, n, uint8_t{0});
  } else if (format.bits == 8) {
    RoundToIntegers(values, scale, n, bytes->codes);
  } else {
    RoundToLevels(format.thresholds, values, scale, n, bytes->codes);
  }
  if (format.bits == 8) {
    std::memcpy(out, bytes->codes, n);
  } else {
    if (n % 2 == 1) bytes->codes[n] = 0;
    PackHalves(bytes->codes, format.CodeBytes(n), out);
  }
}

void Add(const float* __restrict gradient, float decay, const float* __restrict residual, size_t n,
         float* __restrict sum) {
  for (size_t i = 0; i < n; ++i) sum[i] = decay * residual[i] + gradient[i];
}

void SubtractValues(const float* __restrict sum, const int8_t* __restrict numbers, float unit, float scale,
                    size_t n, float* __restrict residual) {
  for (size_t i = 0; i < n; ++i) residual[i] = sum[i] - static_cast<float>(numbers[i]) * unit * scale;
}

// Returns true if all values are usable.
bool WriteValues(const int8_t* __restrict numbers, float unit, float scale, size_t n, float* __restrict out) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) {
    const float value = static_cast<float>(numbers[i]) * unit * scale;
    largest = std::max(largest, MagnitudeBits(value));
    out[i] = value;
  }
  return largest < kTooLargeBits;
}

// Reads the codes of a group of n values.
void TakeCodes(const GroupFormat& format, size_t n, PayloadView* codes, Bytes* bytes) {
  const size_t size = format.CodeBytes(n);
  char copy[kMaxGroup];
  const char* from = codes->front().data();
  if (codes->front().size() < size) {
    codes->Take(size, copy);
    from = copy;
  } else {
    codes->Skip(size);
  }
  if (format.bits == 8) {
    std::memcpy(bytes->codes, from, size);
  } else {
    UnpackHalves(from, size, bytes->codes);
  }
}

absl::Status CheckGroup(const GroupFormat& format, int64_t index, float scale, size_t n, const Bytes& bytes) {
  if (scale < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("scale ", index, " of the payload is ", scale, "; it must be 0 or above"));
  }
  if (format.bits == 8) {
    int8_t least = 0;
    for (size_t i = 0; i < n; ++i) least = std::min(least, bytes.numbers[i]);
    if (least < -127) {
      return absl::InvalidArgumentError(
          absl::StrCat("group ", index, " of the payload has the code -128; codes are -127 to 127"));
    }
  } else if (n % 2 == 1 && bytes.codes[n] != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the last 4 bits of the payload are ", bytes.codes[n], "; they must be 0"));
  }
  return absl::OkStatus();
}

}  // namespace

const GroupFormat* FindGroupFormat(v1::Compression::Codec codec) {
  for (const GroupFormat& format : kFormats) {
    if (format.codec == codec) return &format;
  }
  return nullptr;
}

void EncodeScaledGroups(const GroupFormat& format, absl::Span<const float> gradient, float decay,
                        absl::Span<float> residual, char* out) {
  CHECK_EQ(gradient.size(), residual.size());
  const size_t n = gradient.size(), group = static_cast<size_t>(format.group);
  char* scales = out;
  bool finite = true;
  for (size_t begin = 0; begin < n; begin += group) {
    const size_t size = std::min(group, n - begin);
    const float scale = ScaleOf(format, LargestMagnitude(&gradient[begin], decay, &residual[begin], size));
    std::memcpy(scales, &scale, sizeof(scale));
    scales += sizeof(scale);
    finite &= IsFinite(scale);
  }
  char* codes = scales;
  scales = out;
  Bytes bytes;
  float sum[kMaxGroup];
  for (size_t begin = 0; begin < n; begin += group) {
    const size_t size = std::min(group, n - begin);
    float scale;
    std::memcpy(&scale, scales, sizeof(scale));
    scales += sizeof(scale);
    Add(&gradient[begin], decay, &residual[begin], size, sum);
    EncodeGroup(format, sum, scale, size, &bytes, codes);
    codes += format.CodeBytes(size);
    if (!finite) continue;
    NumbersOfCodes(format, size, &bytes);
    SubtractValues(sum, bytes.numbers, format.unit, scale, size, &residual[begin]);
  }
}

absl::StatusOr<bool> DecodeScaledGroups(const GroupFormat& format, PayloadView payload,
                                        absl::Span<float> out) {
  const size_t n = out.size(), group = static_cast<size_t>(format.group);
  PayloadView codes = payload;
  codes.Skip(sizeof(float) * format.Groups(n));
  Bytes bytes;
  bool finite = true;
  for (size_t begin = 0; begin < n; begin += group) {
    const size_t size = std::min(group, n - begin);
    const float scale = TakeOne<float>(&payload);
    TakeCodes(format, size, &codes, &bytes);
    NumbersOfCodes(format, size, &bytes);
    if (absl::Status status = CheckGroup(format, begin / group, scale, size, bytes); !status.ok()) {
      return status;
    }
    finite &= WriteValues(bytes.numbers, format.unit, scale, size, &out[begin]);
  }
  return finite;
}

}  // namespace catchment
