// Gradients as a network of several layers takes them.
#ifndef CATCHMENT_TESTS_CONFORMANCE_LAYERS_H_
#define CATCHMENT_TESTS_CONFORMANCE_LAYERS_H_

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "worker/model/pass_observer.h"

namespace catchment {

// `gradient(weights, gradient)` taken in a pass over up to three layers. It sees each layer's weights as they
// are right after they were asked for, and writes each layer's part right before it is reported: what comes
// later, or goes earlier, is seen as a NaN.
template <typename Gradient>
auto InLayers(Gradient gradient) {
  return [gradient](absl::Span<const float> weights, absl::Span<float> out, PassObserver* observer) {
    const auto n = static_cast<int64_t>(weights.size());
    const int64_t layers = std::min<int64_t>(3, n);
    const auto layer = [&](int64_t i) { return Range{n * i / layers, n * (i + 1) / layers}; };
    std::vector<float> seen(n), whole(n);
    for (int64_t i = 0; i < layers; ++i) {
      observer->BeforeForward(layer(i));
      std::copy(weights.begin() + layer(i).begin, weights.begin() + layer(i).end,
                seen.begin() + layer(i).begin);
    }
    gradient(absl::MakeConstSpan(seen), absl::MakeSpan(whole));
    std::fill(out.begin(), out.end(), std::numeric_limits<float>::quiet_NaN());
    for (int64_t i = layers - 1; i >= 0; --i) {
      std::copy(whole.begin() + layer(i).begin, whole.begin() + layer(i).end, out.begin() + layer(i).begin);
      observer->AfterBackward(layer(i));
    }
  };
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_CONFORMANCE_LAYERS_H_
