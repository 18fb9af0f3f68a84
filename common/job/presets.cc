#include "common/job/presets.h"

#include <algorithm>

#include "absl/strings/str_join.h"

namespace catchment {
namespace {

constexpr v1::Contribution::KindCase kGradient = v1::Contribution::kGradient;
constexpr v1::Contribution::KindCase kElastic = v1::Contribution::kElastic;

// Of PyTorch where it has defaults.
float DefaultLearningRate(v1::Optimizer::Kind kind, const Preset& preset) {
  switch (kind) {
    case v1::Optimizer::ADAGRAD:
    case v1::Optimizer::RMSPROP: return 0.01f;
    case v1::Optimizer::ADADELTA: return 1;
    case v1::Optimizer::ADAM:
    case v1::Optimizer::ADAMW: return 0.001f;
    default: return preset.learning_rate;
  }
}

void FillAxes(const Preset& preset, v1::Algorithm* algorithm) {
  auto* consistency = algorithm->mutable_consistency();
  if (!consistency->has_groups()) consistency->set_groups(preset.groups);
  auto* contribution = algorithm->mutable_contribution();
  if (contribution->kind_case() != v1::Contribution::KIND_NOT_SET) return;
  if (preset.contribution == kElastic) {
    contribution->mutable_elastic();
  } else {
    contribution->mutable_gradient();
  }
}

const Preset& OptimizerPreset(const Preset& preset, const v1::Algorithm& algorithm) {
  const auto kind = algorithm.contribution().kind_case();
  if (preset.contribution == kind) return preset;
  for (const Preset& other : Presets()) {
    if (other.groups == algorithm.consistency().groups() && other.contribution == kind) return other;
  }
  return preset;
}

void FillMomentum(const Preset& preset, bool elastic, v1::Optimizer* optimizer) {
  if (!optimizer->has_momentum()) optimizer->set_momentum(preset.momentum);
  // The workers of elastic averaging have no other momentum than Nesterov's.
  if (!optimizer->has_nesterov()) {
    optimizer->set_nesterov(optimizer->momentum() > 0 && (preset.nesterov || elastic));
  }
}

}  // namespace

const std::vector<Preset>& Presets() {
  static const std::vector<Preset>* const kPresets = new std::vector<Preset>{
      // The reference for every other: the sequential algorithm with a batch of workers x batch_size.
      {"sync",
       "Machines are alike and the network is fast: every update waits for all workers, and a run can be "
       "repeated.",
       1, kGradient, 0.05f, 0.9f, false},
      // Less momentum than sync: asynchrony adds some of its own, 1 - 1/workers (arXiv:1605.09774).
      {"downpour",
       "Workers differ in speed or come and go, and are few enough for stale gradients to do little "
       "harm.",
       0, kGradient, 0.03f, 0.8f, false},
      // A quarter of the traffic of downpour at the default period, and the workers explore on their own.
      {"easgd",
       "The network is slow, or workers are many: each trains its own weights, tied to the center by a "
       "spring.",
       0, kElastic, 0.3f, 0, false},
      // All workers exchange against the same center: easgd that can be repeated.
      {"easgd_sync", "As easgd, where machines are alike and a run must be repeatable.", 1, kElastic, 0.3f, 0,
       false},
      // Momentum multiplies the step by about 1 / (1 - 0.9), hence the smaller learning rate.
      {"eamsgd", "As easgd, for models that need momentum to train well.", 0, kElastic, 0.04f, 0.9f, true},
  };
  return *kPresets;
}

const Preset* FindPreset(const std::string& name) {
  const auto found = std::find_if(Presets().begin(), Presets().end(),
                                  [&](const Preset& preset) { return preset.name == name; });
  return found == Presets().end() ? nullptr : &*found;
}

std::string ListPresets() {
  return absl::StrJoin(Presets(), ", ",
                       [](std::string* out, const Preset& preset) { out->append(preset.name); });
}

void ApplyPreset(const Preset& preset, v1::Job* job) {
  FillAxes(preset, job->mutable_algorithm());
  const Preset& fitting = OptimizerPreset(preset, job->algorithm());
  v1::Optimizer* optimizer = job->mutable_optimizer();
  if (optimizer->kind() == v1::Optimizer::UNSET) optimizer->set_kind(v1::Optimizer::SGD);
  if (!optimizer->has_learning_rate()) {
    optimizer->set_learning_rate(DefaultLearningRate(optimizer->kind(), fitting));
  }
  if (optimizer->kind() == v1::Optimizer::SGD) {
    FillMomentum(fitting, job->algorithm().contribution().has_elastic(), optimizer);
  }
  if (optimizer->schedule().decay() == v1::Schedule::DECAY_UNSET) {
    optimizer->mutable_schedule()->set_decay(v1::Schedule::COSINE);
  }
}

}  // namespace catchment
