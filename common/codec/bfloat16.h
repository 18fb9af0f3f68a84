// Payloads of bfloat16: the upper half of each float32, rounded to the nearest, ties to even. Eight
// significant bits and float32's whole range: 2 bytes a value, relative error at most 2^-8.
//
// NaN stays NaN. Magnitudes of 3.396e38 and more become infinity, as IEEE 754 rounds them.
//
// Threads: pure functions.
// Source: Burgess et al. 2019, "Bfloat16 processing for neural networks"; Kalamkar et al. 2019,
// arXiv:1905.12322.
#ifndef CATCHMENT_COMMON_CODEC_BFLOAT16_H_
#define CATCHMENT_COMMON_CODEC_BFLOAT16_H_

#include "absl/types/span.h"
#include "common/wire/block_frame.h"

namespace catchment {

// `out` has room for 2 bytes a value.
void EncodeBfloat16(absl::Span<const float> values, char* out);

// `out` has room for payload.size() / 2 values; the size is even. Returns whether all are finite.
bool DecodeBfloat16(const PayloadView& payload, float* out);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CODEC_BFLOAT16_H_
