// The common parts of the optimizers: the loop over the parameters, norms over tensors, Adam's bias
// correction, and the table of all kinds.
#ifndef CATCHMENT_OPTIM_IMPLEMENTATION_H_
#define CATCHMENT_OPTIM_IMPLEMENTATION_H_

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "optim/optimizer.h"

namespace catchment {

// Assigns w[i] = update(w[i], g[i], i) for all i, and copies the result to part.copy. `update` is inlined, so
// that the loop vectorises.
template <typename Update>
inline void OnePass(const Optimizer::Part& part, Update update) {
  float* __restrict w = part.weights;
  const float* __restrict g = part.gradient;
  float* __restrict copy = part.copy;
  if (copy == nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < part.n; ++i) w[i] = update(w[i], g[i], i);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < part.n; ++i) copy[i] = w[i] = update(w[i], g[i], i);
  }
}

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

// Returns the Euclidean norm of value(0) .. value(n-1), summed in double precision, in an order that depends
// on n alone: a tensor has the same norm wherever it lies. `value` is inlined, so that the loop vectorises.
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

// Returns a learning rate times a ratio of norms as a finite float. The ratio has no bound if one of the
// norms almost vanishes, and infinity times 0 is not a number.
inline float FiniteRate(double rate) {
  return static_cast<float>(std::min<double>(rate, std::numeric_limits<float>::max()));
}

// Returns min(max(g, -clip_value), clip_value); clip_value may be infinite.
inline float Clip(float g, float clip_value) { return std::min(std::max(g, -clip_value), clip_value); }

// Returns infinity if gradients are not clipped.
inline float ClipValue(const v1::Optimizer& config) {
  return config.has_clip_value() ? config.clip_value() : std::numeric_limits<float>::infinity();
}

// The correction of Adam's averages in one step, the same for all parameters.
struct AdamCorrection {
  AdamCorrection(const Optimizer::Step& step, float beta1, float beta2) {
    const double t = static_cast<double>(step.number);
    rate = static_cast<float>(step.learning_rate / (1 - std::pow(double{beta1}, t)));
    root = static_cast<float>(1 / std::sqrt(1 - std::pow(double{beta2}, t)));
  }

  float rate;  // lr / (1 - beta1^t)
  float root;  // 1 / sqrt(1 - beta2^t)
};

// Returns "beta1 0.9, beta2 0.999, epsilon 1e-08".
inline std::string DescribeBetas(const v1::Optimizer& config) {
  return absl::StrCat("beta1 ", config.beta1(), ", beta2 ", config.beta2(), ", epsilon ", config.epsilon());
}

// Each is defined in the file of its name, kLarc in lars.cc.
extern const OptimizerKind kSgd;
extern const OptimizerKind kAdagrad;
extern const OptimizerKind kAdam;
extern const OptimizerKind kRmsProp;
extern const OptimizerKind kAdadelta;
extern const OptimizerKind kAdamW;
extern const OptimizerKind kLars;
extern const OptimizerKind kLamb;
extern const OptimizerKind kLarc;

inline constexpr const OptimizerKind* kOptimizerKinds[] = {&kSgd,   &kAdagrad, &kAdam, &kRmsProp, &kAdadelta,
                                                           &kAdamW, &kLars,    &kLamb, &kLarc};

}  // namespace catchment

#endif  // CATCHMENT_OPTIM_IMPLEMENTATION_H_
