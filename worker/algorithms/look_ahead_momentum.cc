#include "worker/algorithms/look_ahead_momentum.h"

#include <algorithm>

namespace catchment {

void LookAheadMomentum::Apply(Range layer, absl::Span<const float>, absl::Span<float> gradient) {
  const float mu = mu_;
  float* const v = v_.data();
  float* const g = gradient.data();
#pragma GCC ivdep
  for (int64_t i = layer.begin; i < layer.end; ++i) {
    v[i] = mu * v[i] + g[i];
    g[i] = g[i] + mu * v[i];
  }
}

void LookAheadMomentum::Reset() { std::fill(v_.begin(), v_.end(), 0.0f); }

void LookAheadMomentum::ListState(WorkerState* state) {
  state->vectors.push_back({"momentum", absl::MakeSpan(v_)});
}

}  // namespace catchment
