#include "common/codec/push_encoder.h"

namespace catchment {

PushEncoder::PushEncoder(const v1::Compression& compression, int64_t num_parameters)
    : codec_(Codec::ForPush(compression)),
      top_k_fraction_(compression.top_k_fraction()),
      residual_(codec_.kind() == v1::Compression::TOP_K ? num_parameters : 0) {}

float PushEncoder::Encode(int64_t begin, absl::Span<const float> gradient, uint32_t samples, char* out) {
  if (codec_.kind() != v1::Compression::TOP_K) return codec_.Encode(gradient, out);
  const int64_t k = TopKCount(top_k_fraction_, gradient.size());
  if (samples == 0) {
    EncodeTopKZeros(k, out);
  } else {
    top_k_.Encode(gradient, absl::MakeSpan(residual_).subspan(begin, gradient.size()), k, out);
  }
  return 1;
}

}  // namespace catchment
