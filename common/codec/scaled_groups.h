// Payloads of codes of 8 or 4 bits, with one scale for each group of consecutive values of a block, and error
// feedback: what rounding loses is added to the next contribution.
//
//   a = decay * residual + gradient
//   s = max |a| in the group
//   u = s / largest                      the scale; 0 if s is below 2^-100
//   code = the number of the level that is nearest to a / u, and its sign
//   value = level * u
//   residual = a - value
//
// INT8: groups of 256, largest = 127, code = a / u rounded to the nearest integer, ties to even.
// E2M1: groups of 128, largest = 6, levels 0, 0.5, 1, 1.5, 2, 3, 4, 6.
// E3M0: groups of 128, largest = 1, levels 0 and 2^-6 to 2^0. In both, |a| has the level L if L thresholds t
// (halfway between two levels) have |a| >= t * u.
//
// The last group of a block is shorter. If s is NaN or infinite, or so close to the largest float32 that
// largest * u is infinite, u is NaN: the group decodes to NaN, and the server refuses the contribution
// (Block.NON_FINITE). The residual of the whole block then does not change: this gradient is lost, like any
// refused contribution, and what earlier gradients left is kept.
//
// Every product, quotient and sum is rounded to float32 separately, so that all implementations produce the
// same bytes.
//
// Payload: the float32 scales of all groups; the codes. INT8: two's complement, -127 to 127. 4 bits: value 2i
// in the low half of byte i, value 2i + 1 in its high half; bit 3 is the sign, bits 0 to 2 are the level. A
// level of 0 is written without a sign and is +0 with and without one. With an odd number of values the last
// high half is 0.
//
// Source: Dettmers et al. 2022, "8-bit optimizers via block-wise quantization", arXiv:2110.02861, for scales
// of groups; Rouhani et al. 2023, arXiv:2310.10537, for E2M1; Douillard et al. 2025, "Streaming DiLoCo",
// arXiv:2501.18512, for E3M0, whose scale and rounding are our choice; Seide et al. 2014, "1-bit stochastic
// gradient descent", for error feedback.
#ifndef CATCHMENT_COMMON_CODEC_SCALED_GROUPS_H_
#define CATCHMENT_COMMON_CODEC_SCALED_GROUPS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/wire/block_frame.h"
#include "proto/job.pb.h"

namespace catchment {

// One of the three codecs.
struct GroupFormat {
  v1::Compression::Codec codec;
  int64_t group;  // the number of values that share a scale
  int bits;       // of a code: 8 or 4
  float largest;  // the largest level
  float unit;     // a power of two; every level is an integer times the unit
  // Codes of 4 bits only; a code of 8 bits is its level.
  std::array<float, 7> thresholds;  // ascending; in scales
  std::array<int8_t, 16> numbers;   // levels by code, in units

  int64_t Groups(int64_t n) const { return (n + group - 1) / group; }
  size_t CodeBytes(int64_t n) const { return static_cast<size_t>((n * bits + 7) / 8); }
  size_t PayloadBytes(int64_t n) const { return sizeof(float) * Groups(n) + CodeBytes(n); }
};

// Returns null for codecs of other kinds.
const GroupFormat* FindGroupFormat(v1::Compression::Codec codec);

// `gradient` and `residual` have the same number of values; `out` has room for their PayloadBytes.
// Threads: pure function.
void EncodeScaledGroups(const GroupFormat& format, absl::Span<const float> gradient, float decay,
                        absl::Span<float> residual, char* out);

// Decodes a payload of out.size() values. Returns true if all values are usable.
// Errors: InvalidArgument for a scale below 0, the code -128, and a last high half that is not 0; `out` is
// then undefined. Threads: pure function.
absl::StatusOr<bool> DecodeScaledGroups(const GroupFormat& format, PayloadView payload,
                                        absl::Span<float> out);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CODEC_SCALED_GROUPS_H_
