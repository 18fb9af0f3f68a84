#include "common/codec/push_encoder.h"

#include "common/codec/codec.h"
#include "common/codec/scaled_groups.h"

namespace catchment {

PushEncoder::PushEncoder(const v1::Compression& compression, int64_t num_parameters)
    : codec_(Codec::ForPush(compression)),
      top_k_fraction_(compression.top_k_fraction()),
      residual_decay_(compression.has_residual_decay() ? compression.residual_decay() : 1),
      residual_(HasErrorFeedback(codec_.kind()) ? num_parameters : 0) {}

float PushEncoder::Encode(int64_t begin, absl::Span<const float> gradient, uint32_t samples, char* out) {
  if (!HasErrorFeedback(codec_.kind())) return codec_.Encode(gradient, out);
  const int64_t n = static_cast<int64_t>(gradient.size());
  if (samples == 0) {
    codec_.EncodeZeros(n, out);
    return 1;
  }
  const absl::Span<float> residual = absl::MakeSpan(residual_).subspan(begin, n);
  if (const GroupFormat* format = FindGroupFormat(codec_.kind())) {
    EncodeScaledGroups(*format, gradient, residual_decay_, residual, out);
  } else {
    top_k_.Encode(gradient, residual_decay_, residual, TopKCount(top_k_fraction_, n), out);
  }
  return 1;
}

}  // namespace catchment
