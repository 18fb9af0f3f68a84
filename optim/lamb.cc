// LAMB (You et al. 2020, arXiv:1904.00962), tensor by tensor: at step t
//   g = min(max(g, -clip_value), clip_value)
//   m = beta1 * m + (1 - beta1) * g ; v = beta2 * v + (1 - beta2) * g * g
//   u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay * w
//   r = |w| / |u|  if both are above 0, otherwise 1
//   w -= lr * r * u
// |.| is the Euclidean norm over the whole tensor. This applies to all tensors, biases too, as in the paper's
// algorithm, with its phi(|w|) = |w|; some implementations leave tensors of one dimension out, bound |w|, or
// have no bias correction. u is computed twice, once for its norm, instead of being stored.
#include "optim/implementation.h"

namespace catchment {
namespace {

class Lamb final : public Optimizer {
 public:
  // clip_value may be infinite.
  Lamb(float beta1, float beta2, float epsilon, float weight_decay, float clip_value)
      : beta1_(beta1),
        beta2_(beta2),
        epsilon_(epsilon),
        weight_decay_(weight_decay),
        clip_value_(clip_value) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }

  void Apply(const Step& step, const Part& part) const override {
    const float beta1 = step.momentum.value_or(beta1_);
    ForEachTensor(part, [&](const Part& tensor) {
      Average(beta1, tensor);
      Move(step, beta1, tensor);
    });
  }

 private:
  // Updates m and v.
  void Average(float beta1, const Part& tensor) const {
    const float beta2 = beta2_, clip_value = clip_value_;
    const float* __restrict gradient = tensor.gradient;
    float* __restrict m = tensor.states[0];
    float* __restrict v = tensor.states[1];
#pragma GCC ivdep
    for (int64_t i = 0; i < tensor.n; ++i) {
      const float g = Clip(gradient[i], clip_value);
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    }
  }

  // Updates w from m and v.
  void Move(const Step& step, float beta1, const Part& tensor) const {
    const AdamCorrection correction({1, step.number}, beta1, beta2_);
    const float scale = correction.rate, root = correction.root, epsilon = epsilon_, decay = weight_decay_;
    const float* const weights = tensor.weights;
    const float* const m = tensor.states[0];
    const float* const v = tensor.states[1];
    const auto u = [=](float w, int64_t i) {
      return scale * m[i] / (std::sqrt(v[i]) * root + epsilon) + decay * w;
    };
    const double w_norm = Norm(tensor.n, [=](int64_t i) { return weights[i]; });
    const double u_norm = Norm(tensor.n, [=](int64_t i) { return u(weights[i], i); });
    const double r = w_norm > 0 && u_norm > 0 ? w_norm / u_norm : 1;
    const float rate = FiniteRate(step.learning_rate * r);
    OnePass(tensor, [=](float w, float, int64_t i) { return w - rate * u(w, i); });
  }

  const float beta1_;
  const float beta2_;
  const float epsilon_;
  const float weight_decay_;
  const float clip_value_;
};

std::unique_ptr<Optimizer> Make(const v1::Optimizer& config) {
  return std::make_unique<Lamb>(config.beta1(), config.beta2(), config.epsilon(), config.weight_decay(),
                                ClipValue(config));
}

std::string Describe(const v1::Optimizer& config) {
  const float decay = config.weight_decay();
  return absl::StrCat("LAMB: ", DescribeBetas(config),
                      "; u = ", decay == 0 ? "Adam's step" : absl::StrCat("(Adam's step + ", decay, " * w)"),
                      " ; w -= lr * |w| / |u| * u, tensor by tensor");
}

constexpr OptimizerField kFields[] = {
    {"learning_rate", 0.001f}, {"beta1", 0.9f}, {"beta2", 0.999f}, {"epsilon", 1e-6f}};

}  // namespace

constexpr OptimizerKind kLamb = {.kind = v1::Optimizer::LAMB,
                                 .whole_tensors = true,
                                 .decays_weights = true,
                                 .fields = kFields,
                                 .make = Make,
                                 .describe = Describe};

}  // namespace catchment
