// Payloads of float32: the values' own bytes.
//
// Threads: pure functions.
#ifndef CATCHMENT_COMMON_CODEC_FLOAT32_H_
#define CATCHMENT_COMMON_CODEC_FLOAT32_H_

#include "common/wire/block_frame.h"

namespace catchment {

// `out` has room for payload.size() / 4 values; the size is a multiple of 4. Returns whether all are finite.
bool DecodeFloat32(const PayloadView& payload, float* out);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CODEC_FLOAT32_H_
