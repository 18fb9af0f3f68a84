#include "common/job/initializer.h"

#include <algorithm>

#include "common/base/random.h"
#include "glog/logging.h"

namespace catchment {
namespace {

// Returns a number that is uniform in (-1, 1), symmetric, of 24 bits: exact in a float.
float SymmetricUnit(uint64_t bits) {
  const auto numerator = static_cast<int32_t>(bits >> 40);
  return static_cast<float>(2 * numerator + 1 - (1 << 24)) * 0x1p-24f;
}

float InitialValue(const InitialValues& initial, uint64_t seed) {
  const auto scale = static_cast<float>(initial.scale);
  switch (initial.kind) {
    case InitialValues::Kind::kUniform:
      return scale * SymmetricUnit(seed);
    case InitialValues::Kind::kNormal:
      return scale * static_cast<float>(Random(seed).Normal());
    case InitialValues::Kind::kConstant:
      return scale;
  }
  return scale;
}

void FillTensor(uint64_t tensor_seed, const InitialValues& initial, Range elements, float* out) {
  for (int64_t i = elements.begin; i < elements.end; ++i) {
    *out++ = InitialValue(initial, Derive(tensor_seed, static_cast<uint64_t>(i)));
  }
}

}  // namespace

void InitializeParameters(const std::vector<LayerShape>& layers, uint64_t seed, Range range, float* out) {
  int64_t offset = 0;
  uint64_t index = 0;
  for (const LayerShape& layer : layers) {
    for (size_t i = 0; i < layer.tensors.size(); ++i) {
      const TensorSpec& tensor = layer.tensors[i];
      const Range part = {std::max(range.begin, offset), std::min(range.end, offset + tensor.size())};
      if (part.size() > 0) {
        FillTensor(Derive(seed, index), layer.initial[i], {part.begin - offset, part.end - offset},
                   out + (part.begin - range.begin));
      }
      offset += tensor.size();
      ++index;
    }
  }
  CHECK(range.begin >= 0 && range.end <= offset)
      << "the range exceeds the model's " << offset << " parameters";
}

}  // namespace catchment
