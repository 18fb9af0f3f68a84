// LARS, layer-wise adaptive rate scaling (You, Gitman, Ginsburg 2017, arXiv:1708.03888), tensor by tensor:
//   g = min(max(g, -clip_value), clip_value)
//   r = trust_coefficient * |w| / (|g| + weight_decay * |w|)  if |w| and |g| are above 0, otherwise 1
//   v = mu * v + lr * r * (g + weight_decay * w) ; w -= v
// LARC (Kurth et al. 2018, arXiv:1810.01993) limits the ratio: min(r, 1) instead of r, so no tensor's rate is
// above lr.
// |.| is the Euclidean norm over the whole tensor. This applies to all tensors, biases too, as in the paper;
// some implementations use plain momentum for tensors of one dimension. The learning rate is in the buffer,
// as in the paper; the momentum of torch.optim.SGD has it outside.
#include "optim/implementation.h"

namespace catchment {
namespace {

class Lars final : public Optimizer {
 public:
  // clip_value and most may be infinite.
  Lars(const v1::Optimizer& config, double most)
      : mu_(config.momentum()),
        trust_coefficient_(config.trust_coefficient()),
        weight_decay_(config.weight_decay()),
        clip_value_(ClipValue(config)),
        most_(most) {}
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }

  void Apply(const Step& step, const Part& part) const override {
    const float mu = step.momentum.value_or(mu_), decay = weight_decay_, clip_value = clip_value_;
    ForEachTensor(part, [&](const Part& tensor) {
      const float rate = FiniteRate(step.learning_rate * Ratio(tensor));
      float* __restrict v = tensor.states[0];
      OnePass(tensor, [=](float w, float g, int64_t i) {
        v[i] = mu * v[i] + rate * (Clip(g, clip_value) + decay * w);
        return w - v[i];
      });
    });
  }

 private:
  double Ratio(const Part& tensor) const {
    const float* const weights = tensor.weights;
    const float* const gradient = tensor.gradient;
    const float clip_value = clip_value_;
    const double w = Norm(tensor.n, [=](int64_t i) { return weights[i]; });
    const double g = Norm(tensor.n, [=](int64_t i) { return Clip(gradient[i], clip_value); });
    return w > 0 && g > 0 ? std::min(trust_coefficient_ * w / (g + weight_decay_ * w), most_) : 1;
  }

  const float mu_;
  const float trust_coefficient_;
  const float weight_decay_;
  const float clip_value_;
  const double most_;  // of r
};

std::unique_ptr<Optimizer> MakeLars(const v1::Optimizer& config) {
  return std::make_unique<Lars>(config, std::numeric_limits<double>::infinity());
}

std::unique_ptr<Optimizer> MakeLarc(const v1::Optimizer& config) { return std::make_unique<Lars>(config, 1); }

std::string Describe(const v1::Optimizer& config) {
  const float decay = config.weight_decay();
  const std::string ratio = absl::StrCat(config.trust_coefficient(), " * |w| / ",
                                         decay == 0 ? "|g|" : absl::StrCat("(|g| + ", decay, " * |w|)"));
  const bool limited = config.kind() == v1::Optimizer::LARC;
  return absl::StrCat(v1::Optimizer::Kind_Name(config.kind()),
                      ": r = ", limited ? absl::StrCat("min(", ratio, ", 1)") : ratio,
                      ", v = ", config.momentum(), " * v + lr * r * ",
                      decay == 0 ? "g" : absl::StrCat("(g + ", decay, " * w)"),
                      " ; w -= v, tensor by tensor");
}

constexpr OptimizerField kFields[] = {
    {"learning_rate", 1}, {"momentum", 0.9f}, {"trust_coefficient", 0.001f}};

}  // namespace

constexpr OptimizerKind kLars = {.kind = v1::Optimizer::LARS,
                                 .whole_tensors = true,
                                 .decays_weights = true,
                                 .fields = kFields,
                                 .make = MakeLars,
                                 .describe = Describe};

constexpr OptimizerKind kLarc = {.kind = v1::Optimizer::LARC,
                                 .whole_tensors = true,
                                 .decays_weights = true,
                                 .fields = kFields,
                                 .make = MakeLarc,
                                 .describe = Describe};

}  // namespace catchment
