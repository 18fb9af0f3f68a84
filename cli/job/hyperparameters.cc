#include "cli/job/hyperparameters.h"

#include <string>

#include "common/job/contribution_kinds.h"
#include "common/job/presets.h"
#include "google/protobuf/message.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

// The step of SGD in the middle of a search. Nothing depends on a preset, so that no algorithm begins nearer
// to its optimum.
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

void SetFloat(const std::string& name, float value, google::protobuf::Message* message) {
  message->GetReflection()->SetFloat(message, message->GetDescriptor()->FindFieldByName(name), value);
}

// Returns the values that are set in the messages that have those of a kind of contribution.
GivenHyperparameters GivenIn(const v1::Job& job, const ContributionKind& kind) {
  v1::Job copy = job;
  return {FindFloat(*kind.learning_rate_of(&copy), "learning_rate"),
          FindFloat(*kind.momentum_of(&copy), "momentum")};
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

SearchFacts SearchFactsOf(const v1::Job& given, const v1::Job& complete, const v1::Job& set) {
  v1::Job all = complete;
  const ContributionKind& kind = KindOf(complete.algorithm().contribution());
  return {.own = HyperparametersOf(complete),
          .set = GivenIn(set, kind),
          .given = GivenIn(given, kind),
          .has_momentum = HasMomentum(*kind.momentum_of(&all)),
          .usual_step = UsualStep(*kind.learning_rate_of(&all)),
          .limit = LimitOf(complete)};
}

}  // namespace catchment
