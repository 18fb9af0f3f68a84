// Computes a batch norm's output once the statistics are known: h = (x - mean) scale, y = weight h + bias,
// and relu(y). Used by its own kernels and by that of an addition that reads it.
#ifndef CATCHMENT_KERNELS_CUDA_NORMALIZATION_H_
#define CATCHMENT_KERNELS_CUDA_NORMALIZATION_H_

#include <cmath>

#include "kernels/cuda/divisor.h"
#include "kernels/cuda/factor.h"
#include "kernels/cuda/pack.h"

namespace catchment::cuda {

// The value h, and the layer's output without relu. Forward and backward call the same functions, so that the
// relu sets the same values to zero in both.
CATCHMENT_ON_DEVICE inline float Normalized(float x, float mean, float scale) { return (x - mean) * scale; }
CATCHMENT_ON_DEVICE inline float NormOutput(float h, float weight, float bias) {
  return fmaf(h, weight, bias);
}

struct Normalization {
  FactorReader x = {};
  const float *mean = nullptr, *scale = nullptr;   // groups x channels
  const float *weight = nullptr, *bias = nullptr;  // channels
  int channels = 1, groups = 1;
  int64_t group_values = 1;  // of all rows of a group; the last group has the rest
  bool relu = false;
};

// A batch norm's output, of which the only reader may take the computation over.
struct Normalizer {
  bool is_taken = false;
  Normalization of_pass;  // after the batch norm's Forward
};

// The packs of a normalization's output.
template <int kWidth>
class NormalizedPacks {
 public:
  explicit NormalizedPacks(const Normalization& n)
      : n_(n), by_channels_(n.channels / kWidth), by_group_(n.group_values / kWidth) {}

  // Returns values i * kWidth, i * kWidth + 1, ...
  CATCHMENT_ON_DEVICE Pack<kWidth> operator()(int i) const {
    const int c = i % by_channels_ * kWidth, group = i / by_group_;
    const int s = (group < n_.groups ? group : n_.groups - 1) * n_.channels + c;
    auto values = n_.x.template Read<kWidth>(int64_t{i} * kWidth);
    const auto m = LoadPack<kWidth>(n_.mean + s), f = LoadPack<kWidth>(n_.scale + s);
    const auto w = LoadPack<kWidth>(n_.weight + c), b = LoadPack<kWidth>(n_.bias + c);
    for (int k = 0; k < kWidth; ++k) {
      const float value = NormOutput(Normalized(values.at[k], m.at[k], f.at[k]), w.at[k], b.at[k]);
      values.at[k] = n_.relu && !(value > 0) ? 0.0f : value;
    }
    return values;
  }

 private:
  Normalization n_;
  Divisor by_channels_, by_group_;
};

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_NORMALIZATION_H_
