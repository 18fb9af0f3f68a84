// What optimizers that work tensor by tensor share (LARS, LAMB).
#ifndef CATCHMENT_SERVER_OPTIMIZERS_WHOLE_TENSORS_H_
#define CATCHMENT_SERVER_OPTIMIZERS_WHOLE_TENSORS_H_

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "server/optimizers/optimizer.h"

namespace catchment {

// Calls apply(tensor) for each tensor of the part.
template <typename Apply>
void ForEachTensor(const Optimizer::Part& part, Apply apply) {
  CHECK(!part.tensor_ends.empty() && part.tensor_ends.back() == part.n)
      << "a part that is not of whole tensors";
  int64_t begin = 0;
  for (const int64_t end : part.tensor_ends) {
    apply(part.Slice(begin, end - begin));
    begin = end;
  }
}

// The Euclidean norm of value(0) .. value(n-1), summed in double precision, in an order that depends on n
// alone: a tensor has the same norm wherever it lies. `value` is inlined, so that the loop vectorises.
template <typename Value>
inline double Norm(int64_t n, Value value) {
  constexpr int kLanes = 16;
  double lanes[kLanes] = {};
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double x = value(i + lane);
      lanes[lane] += x * x;
    }
  }
  for (int64_t i = whole; i < n; ++i) {
    const double x = value(i);
    lanes[i - whole] += x * x;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return std::sqrt(sum);
}

// A learning rate times a ratio of norms, which has no bound where one of them all but vanishes: infinity
// times 0 would be no number.
inline float FiniteRate(double rate) {
  return static_cast<float>(std::min<double>(rate, std::numeric_limits<float>::max()));
}

// g = min(max(g, -clip_value), clip_value); clip_value may be infinite.
inline float Clip(float g, float clip_value) { return std::min(std::max(g, -clip_value), clip_value); }

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OPTIMIZERS_WHOLE_TENSORS_H_
