#include "common/initializer.h"

#include <algorithm>
#include <cmath>

#include "common/random.h"
#include "glog/logging.h"

namespace catchment {
namespace {

// Uniform in (-1, 1), symmetric, 24 bits: exact in a float.
float SymmetricUnit(uint64_t bits) {
  const auto numerator = static_cast<int32_t>(bits >> 40);
  return static_cast<float>(2 * numerator + 1 - (1 << 24)) * 0x1p-24f;
}

void FillTensor(uint64_t tensor_seed, float bound, Range elements, float* out) {
  for (int64_t i = elements.begin; i < elements.end; ++i) {
    *out++ = bound * SymmetricUnit(Derive(tensor_seed, static_cast<uint64_t>(i)));
  }
}

}  // namespace

void InitializeParameters(const std::vector<LayerShape>& layers, uint64_t seed, Range range, float* out) {
  int64_t offset = 0;
  uint64_t index = 0;
  for (const LayerShape& layer : layers) {
    for (const TensorSpec& tensor : layer.tensors) {
      const Range part = {std::max(range.begin, offset), std::min(range.end, offset + tensor.size())};
      if (part.size() > 0) {
        const auto bound = static_cast<float>(1 / std::sqrt(static_cast<double>(layer.fan_in)));
        FillTensor(Derive(seed, index), bound, {part.begin - offset, part.end - offset},
                   out + (part.begin - range.begin));
      }
      offset += tensor.size();
      ++index;
    }
  }
  CHECK(range.begin >= 0 && range.end <= offset) << "a range outside the model's " << offset << " parameters";
}

}  // namespace catchment
