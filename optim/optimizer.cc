#include "optim/optimizer.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "optim/delayed_nesterov.h"
#include "optim/implementation.h"

namespace catchment {
namespace {

// Applies another optimizer, an elementwise one, to prepared gradients:
//   g = min(max(g, -clip_value), clip_value)      torch.nn.utils.clip_grad_value_
//   g = g + weight_decay * w                      coupled weight decay (L2), `weight_decay` of torch.optim
// Gradients are prepared and used in pieces that stay in the first-level cache, so memory is passed over
// once.
class Prepared final : public Optimizer {
 public:
  // clip_value may be infinite.
  Prepared(float clip_value, float weight_decay, std::unique_ptr<Optimizer> optimizer)
      : clip_value_(clip_value), weight_decay_(weight_decay), optimizer_(std::move(optimizer)) {}

  std::vector<std::string> state_names() const override { return optimizer_->state_names(); }

  void Apply(const Step& step, const Part& part) const override {
    constexpr int64_t kPiece = 1024;
    const float most = clip_value_, least = -clip_value_, decay = weight_decay_;
    alignas(64) float prepared[kPiece];
    for (int64_t begin = 0; begin < part.n; begin += kPiece) {
      Part piece = part.Slice(begin, std::min(kPiece, part.n - begin));
      const float* const g = piece.gradient;
      const float* const w = piece.weights;
      for (int64_t i = 0; i < piece.n; ++i) {
        prepared[i] = std::min(std::max(g[i], least), most) + decay * w[i];
      }
      piece.gradient = prepared;
      optimizer_->Apply(step, piece);
    }
  }

 private:
  const float clip_value_;
  const float weight_decay_;
  const std::unique_ptr<Optimizer> optimizer_;
};

std::unique_ptr<Optimizer> MakeUngrouped(const v1::Optimizer& config, uint32_t nesterov_every) {
  const OptimizerKind* const kind = FindOptimizerKind(config.kind());
  CHECK(kind != nullptr) << "a job that was not validated: optimizer.kind " << config.kind();
  std::unique_ptr<Optimizer> optimizer =
      nesterov_every > 1 ? std::make_unique<DelayedNesterov>(config.momentum(), nesterov_every)
                         : kind->make(config);
  const float coupled_decay = kind->decays_weights ? 0 : config.weight_decay();
  if (kind->whole_tensors || (coupled_decay == 0 && !config.has_clip_value())) return optimizer;
  return std::make_unique<Prepared>(ClipValue(config), coupled_decay, std::move(optimizer));
}

// Applies to each tensor the optimizer with the settings of its group.
class Grouped final : public Optimizer {
 public:
  Grouped(const v1::Optimizer& config, uint32_t nesterov_every, std::vector<GroupedTensor> tensors)
      : config_(config), tensors_(std::move(tensors)), own_(MakeUngrouped(config, nesterov_every)) {
    for (const v1::ParameterGroup& group : config.groups()) {
      v1::Optimizer changed = config;
      if (group.has_weight_decay()) changed.set_weight_decay(group.weight_decay());
      of_groups_.push_back(MakeUngrouped(changed, nesterov_every));
    }
  }

  std::vector<std::string> state_names() const override { return own_->state_names(); }

  void Apply(const Step& step, const Part& part) const override {
    auto tensor = std::upper_bound(tensors_.begin(), tensors_.end(), part.position,
                                   [](int64_t value, const GroupedTensor& t) { return value < t.end; });
    for (int64_t begin = 0; begin < part.n; ++tensor) {
      const int64_t n = std::min(tensor->end - part.position, part.n) - begin;
      Part piece = part.Slice(begin, n);
      piece.tensor_ends = absl::MakeConstSpan(&n, 1);
      ApplyTo(tensor->group, step, piece);
      begin += n;
    }
  }

 private:
  void ApplyTo(int index, Step step, const Part& part) const {
    if (index < 0) return own_->Apply(step, part);
    const v1::ParameterGroup& group = config_.groups(index);
    if (group.frozen()) {
      if (part.copy != nullptr) std::copy_n(part.weights, part.n, part.copy);
      return;
    }
    if (group.has_learning_rate_factor()) step.learning_rate *= group.learning_rate_factor();
    of_groups_[index]->Apply(step, part);
  }

  const v1::Optimizer config_;
  const std::vector<GroupedTensor> tensors_;
  const std::unique_ptr<Optimizer> own_;
  std::vector<std::unique_ptr<Optimizer>> of_groups_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const v1::Optimizer& config, uint32_t nesterov_every,
                                         std::vector<GroupedTensor> tensors) {
  if (tensors.empty()) return MakeUngrouped(config, nesterov_every);
  return std::make_unique<Grouped>(config, nesterov_every, std::move(tensors));
}

bool OptimizerKind::HasField(absl::string_view name) const {
  return std::any_of(fields.begin(), fields.end(),
                     [name](const OptimizerField& field) { return name == field.name; });
}

absl::Span<const OptimizerKind* const> OptimizerKinds() { return kOptimizerKinds; }

const OptimizerKind* FindOptimizerKind(v1::Optimizer::Kind kind) {
  for (const OptimizerKind* candidate : kOptimizerKinds) {
    if (candidate->kind == kind) return candidate;
  }
  return nullptr;
}

std::string DescribePreparation(const v1::Optimizer& config) {
  std::string text;
  if (config.has_clip_value()) {
    absl::StrAppend(&text, " Before, g is clipped to +-", config.clip_value(), ".");
  }
  if (config.weight_decay() != 0 && !FindOptimizerKind(config.kind())->decays_weights) {
    absl::StrAppend(&text, " Weight decay: ", config.weight_decay(), " * w is added to g.");
  }
  return text;
}

bool NeedsWholeTensors(const v1::Optimizer& config) {
  const OptimizerKind* const kind = FindOptimizerKind(config.kind());
  return kind != nullptr && kind->whole_tensors;
}

}  // namespace catchment
