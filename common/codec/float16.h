// Payloads of float16 (IEEE 754 binary16) with one scale for the block: number = value / scale, rounded to
// the nearest, ties to even; value = number * scale. 2 bytes a value.
//
//   scale = 2^(E - 14)    where 2^E <= max |value| < 2^(E + 1)
//
// so the largest number is in [2^14, 2^15): nothing overflows, whatever a gradient is multiplied with, a loss
// scale above all, and whatever is down to 2^-28 of the largest keeps eleven significant bits (relative error
// at most 2^-11). Below that bits are lost one by one; what is under 2^-40 of the largest becomes 0. Only
// what is NaN or infinite comes out as such. Two things at the ends of float32's range: the scale is at least
// 2^-126 (smaller values than 2^-112 need no smaller one to be exact), and a block with a magnitude of 2^127
// or more is rounded toward zero, for the nearest could be 2^128.
//
// Threads: pure functions.
// Source: Micikevicius et al. 2018, "Mixed precision training", arXiv:1710.03740, whose loss scale moves
// small gradients into float16's range; here each block has its own, chosen from what it holds.
#ifndef CATCHMENT_COMMON_CODEC_FLOAT16_H_
#define CATCHMENT_COMMON_CODEC_FLOAT16_H_

#include "absl/types/span.h"
#include "common/wire/block_frame.h"

namespace catchment {

// A power of two; 1 for zeros alone.
float ScaleForFloat16(absl::Span<const float> values);

// `scale` is the values' own. `out` has room for 2 bytes a value.
void EncodeFloat16(absl::Span<const float> values, float scale, char* out);

// `out` has room for payload.size() / 2 values; the size is even. Returns whether all are finite.
bool DecodeFloat16(const PayloadView& payload, float scale, float* out);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CODEC_FLOAT16_H_
