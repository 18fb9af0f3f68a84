// Encodes a worker's pushes, with the residuals of codecs with error feedback: one for each parameter, zero
// at first. A block of a push is encoded only once: keep the payload until it is answered, and send the
// same bytes when it has to be sent again.
//
// The residual belongs to the worker: it is lost when the worker leaves, unless a checkpoint has it
// (Checkpointing.worker_state).
//
// Threads: one caller at a time. Allocates at construction, and for a block that is larger than all earlier
// ones.
#ifndef CATCHMENT_COMMON_CODEC_PUSH_ENCODER_H_
#define CATCHMENT_COMMON_CODEC_PUSH_ENCODER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/codec/codec.h"
#include "common/codec/top_k.h"
#include "proto/job.pb.h"

namespace catchment {

class PushEncoder {
 public:
  // `compression` is complete and valid; `num_parameters` is that of the whole model.
  PushEncoder(const v1::Compression& compression, int64_t num_parameters);

  const Codec& codec() const { return codec_; }
  // Empty for codecs without error feedback.
  absl::Span<float> residual() { return absl::MakeSpan(residual_); }

  // Writes the payload of one block, whose first value is parameter `begin`, to `out`, which has room for
  // codec().PayloadBytes(gradient.size()); returns its Block.scale. `samples`: Block.samples; with 0 the
  // contribution is not part of the update, and the residual does not change.
  float Encode(int64_t begin, absl::Span<const float> gradient, uint32_t samples, char* out);

 private:
  const Codec codec_;
  const float top_k_fraction_;
  const float residual_decay_;
  TopKEncoder top_k_;
  std::vector<float> residual_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CODEC_PUSH_ENCODER_H_
