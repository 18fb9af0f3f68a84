#include "absl/strings/str_cat.h"
#include "cli/compare/compare_plan.h"
#include "common/job/contribution_kinds.h"
#include "common/text.h"
#include "google/protobuf/message.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

constexpr float kMomenta[] = {0, 0.3f, 0.6f, 0.9f};

// Returns false for an optimizer of a kind without momentum.
bool HasMomentum(const google::protobuf::Message& message) {
  const auto* const optimizer = dynamic_cast<const v1::Optimizer*>(&message);
  return optimizer == nullptr || FindOptimizerKind(optimizer->kind())->HasField("momentum");
}

float FloatOf(const google::protobuf::Message& message, const std::string& name) {
  return message.GetReflection()->GetFloat(message, message.GetDescriptor()->FindFieldByName(name));
}

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

std::vector<Hyperparameters> SearchGrid(const Hyperparameters& start) {
  std::vector<Hyperparameters> grid;
  for (float rate : {start.learning_rate, start.learning_rate / 10}) {
    if (!start.momentum.has_value()) {
      grid.push_back({rate, std::nullopt});
      continue;
    }
    for (float momentum : kMomenta) grid.push_back({rate, momentum});
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
