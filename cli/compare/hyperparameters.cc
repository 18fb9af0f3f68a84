#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/compare/compare_plan.h"
#include "common/base/text.h"
#include "common/job/contribution_kinds.h"
#include "common/job/presets.h"
#include "google/protobuf/message.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

constexpr float kMomenta[] = {0, 0.9f};
// Shares of the largest step. More of them would leave each trial too short a run to tell them apart.
constexpr double kSteps[] = {0.05, 0.1, 0.25, 0.5, 1};
constexpr double kLargestOverMiddle = 4;
// The step of SGD in the middle. Nothing depends on a preset, so that no algorithm begins nearer to its
// optimum.
constexpr double kSgdStep = 0.5;

// Returns false for an optimizer of a kind without momentum.
bool HasMomentum(const google::protobuf::Message& message) {
  const auto* const optimizer = dynamic_cast<const v1::Optimizer*>(&message);
  return optimizer == nullptr || FindOptimizerKind(optimizer->kind())->HasField("momentum");
}

// Returns the value of a field that is set.
std::optional<float> FindFloat(const google::protobuf::Message& message, const std::string& name) {
  const auto* const field = message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr || !message.GetReflection()->HasField(message, field)) return std::nullopt;
  return message.GetReflection()->GetFloat(message, field);
}

// Returns the step in the middle of a search if the job has no learning rate.
double UsualStep(const google::protobuf::Message& complete) {
  const auto* const optimizer = dynamic_cast<const v1::Optimizer*>(&complete);
  if (optimizer == nullptr || optimizer->kind() == v1::Optimizer::SGD) return kSgdStep;
  for (const OptimizerField& field : FindOptimizerKind(optimizer->kind())->fields) {
    if (field.name == std::string("learning_rate")) return field.default_value.value_or(kSgdStep);
  }
  return kSgdStep;
}

// Returns the limit of a step that the preset has for the job's workers, if the learning rate is that of the
// servers.
std::optional<double> LimitOf(const v1::Job& complete) {
  const Preset* const preset = FindPreset(complete.algorithm().preset());
  const bool of_servers = KindOf(complete.algorithm().contribution()).learning_rate_of == ServersOptimizer;
  return preset != nullptr && of_servers ? StepLimit(*preset, complete) : std::nullopt;
}

float FloatOf(const google::protobuf::Message& message, const std::string& name) {
  return message.GetReflection()->GetFloat(message, message.GetDescriptor()->FindFieldByName(name));
}

// 0.005, not 0.004999999: rates have four digits, as reports show them.
float Rounded(double rate) { return std::strtof(Short(rate, 4).c_str(), nullptr); }

void SetFloat(const std::string& name, float value, google::protobuf::Message* message) {
  message->GetReflection()->SetFloat(message, message->GetDescriptor()->FindFieldByName(name), value);
}

}  // namespace

Hyperparameters HyperparametersOf(const v1::Job& job) {
  v1::Job copy = job;
  const ContributionKind& kind = KindOf(job.algorithm().contribution());
  const google::protobuf::Message& momentum = *kind.momentum_of(&copy);
  Hyperparameters hyperparameters{FloatOf(*kind.learning_rate_of(&copy), "learning_rate"), std::nullopt};
  if (HasMomentum(momentum)) hyperparameters.momentum = FloatOf(momentum, "momentum");
  return hyperparameters;
}

void SetHyperparameters(const Hyperparameters& hyperparameters, v1::Job* job) {
  const v1::Contribution& contribution = job->algorithm().contribution();
  const ContributionKind& kind = KindOf(contribution);
  SetFloat("learning_rate", hyperparameters.learning_rate, kind.learning_rate_of(job));
  if (!hyperparameters.momentum.has_value()) return;
  google::protobuf::Message* const with_momentum = kind.momentum_of(job);
  SetFloat("momentum", *hyperparameters.momentum, with_momentum);
  auto* const optimizer = dynamic_cast<v1::Optimizer*>(with_momentum);
  if (optimizer == nullptr || optimizer->kind() != v1::Optimizer::SGD) return;
  // Nesterov's method requires momentum, and elastic averaging supports no other kind.
  optimizer->set_nesterov(*hyperparameters.momentum > 0 &&
                          (contribution.has_elastic() || optimizer->nesterov()));
}

void KeepLearningRate(v1::Job* job) {
  const auto keep = [](v1::Optimizer* optimizer) {
    v1::Schedule schedule;
    schedule.set_decay(v1::Schedule::CONSTANT);
    schedule.set_warmup(optimizer->schedule().warmup());
    *optimizer->mutable_schedule() = schedule;
  };
  keep(job->mutable_optimizer());
  auto* const own =
      dynamic_cast<v1::Optimizer*>(KindOf(job->algorithm().contribution()).learning_rate_of(job));
  if (own != nullptr) keep(own);
}

SearchSpace SpaceOf(const v1::Job& given, const v1::Job& complete, const v1::Job& set) {
  v1::Job all = complete, own = given, fixed = set;
  const ContributionKind& kind = KindOf(complete.algorithm().contribution());
  const google::protobuf::Message& with_rate = *kind.learning_rate_of(&all);
  SearchSpace space{.own = HyperparametersOf(complete)};
  space.learning_rate = FindFloat(*kind.learning_rate_of(&fixed), "learning_rate");
  const std::optional<float> momentum = FindFloat(*kind.momentum_of(&fixed), "momentum");
  if (!HasMomentum(*kind.momentum_of(&all))) {
    space.momenta = {std::nullopt};
  } else if (momentum.has_value()) {
    space.momenta = {momentum};
  } else {
    space.momenta.assign(std::begin(kMomenta), std::end(kMomenta));
  }
  double step = UsualStep(with_rate);
  if (const std::optional<float> rate = FindFloat(*kind.learning_rate_of(&own), "learning_rate")) {
    step = *rate;
    if (space.momenta.back().has_value())
      step /= 1 - FindFloat(*kind.momentum_of(&own), "momentum").value_or(*space.momenta.back());
  }
  space.largest_step = kLargestOverMiddle * step;
  if (const std::optional<double> limit = LimitOf(complete))
    space.largest_step = std::min(space.largest_step, *limit);
  return space;
}

std::vector<Hyperparameters> SearchGrid(const SearchSpace& space) {
  std::vector<Hyperparameters> grid = {space.own};
  const auto add = [&](float rate, std::optional<float> momentum) {
    const bool is_own = momentum == space.own.momentum && Rounded(rate) == Rounded(space.own.learning_rate);
    if (!is_own) grid.push_back({rate, momentum});
  };
  for (const std::optional<float>& momentum : space.momenta) {
    if (space.learning_rate.has_value()) {
      add(*space.learning_rate, momentum);
      continue;
    }
    for (const double share : kSteps)
      add(Rounded(space.largest_step * share * (1 - momentum.value_or(0))), momentum);
  }
  return grid;
}

std::string ToString(const Hyperparameters& hyperparameters) {
  const std::string rate = absl::StrCat("learning rate ", Short(hyperparameters.learning_rate));
  return hyperparameters.momentum.has_value()
             ? absl::StrCat(rate, ", momentum ", Short(*hyperparameters.momentum))
             : rate;
}

}  // namespace catchment
