#include "cli/compare/hyperparameters.h"

#include "absl/strings/str_cat.h"
#include "cli/text.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

constexpr float kMomenta[] = {0, 0.3f, 0.6f, 0.9f};

Hyperparameters HyperparametersOf(const v1::Optimizer& optimizer) {
  Hyperparameters hyperparameters{optimizer.learning_rate(), std::nullopt};
  if (FindOptimizerKind(optimizer.kind())->HasField("momentum"))
    hyperparameters.momentum = optimizer.momentum();
  return hyperparameters;
}

// There is no Nesterov without momentum, and elastic averaging has no other kind.
void SetHyperparameters(const Hyperparameters& hyperparameters, bool elastic, v1::Optimizer* optimizer) {
  optimizer->set_learning_rate(hyperparameters.learning_rate);
  if (!hyperparameters.momentum.has_value()) return;
  optimizer->set_momentum(*hyperparameters.momentum);
  if (optimizer->kind() == v1::Optimizer::SGD) {
    optimizer->set_nesterov(*hyperparameters.momentum > 0 && (elastic || optimizer->nesterov()));
  }
}

}  // namespace

Hyperparameters HyperparametersOf(const v1::Job& job) {
  const v1::Contribution& contribution = job.algorithm().contribution();
  switch (contribution.kind_case()) {
    case v1::Contribution::kPseudoGradient:
      return HyperparametersOf(contribution.pseudo_gradient().local_optimizer());
    case v1::Contribution::kEnergyMatching:
      return {contribution.energy_matching().learning_rate(), contribution.energy_matching().momentum()};
    case v1::Contribution::kLookAhead:
      return {job.optimizer().learning_rate(), contribution.look_ahead().momentum()};
    default:
      return HyperparametersOf(job.optimizer());
  }
}

void SetHyperparameters(const Hyperparameters& hyperparameters, v1::Job* job) {
  v1::Contribution* const contribution = job->mutable_algorithm()->mutable_contribution();
  switch (contribution->kind_case()) {
    case v1::Contribution::kPseudoGradient:
      return SetHyperparameters(hyperparameters, /*elastic=*/false,
                                contribution->mutable_pseudo_gradient()->mutable_local_optimizer());
    case v1::Contribution::kEnergyMatching:
      contribution->mutable_energy_matching()->set_learning_rate(hyperparameters.learning_rate);
      contribution->mutable_energy_matching()->set_momentum(*hyperparameters.momentum);
      return;
    case v1::Contribution::kLookAhead:
      job->mutable_optimizer()->set_learning_rate(hyperparameters.learning_rate);
      contribution->mutable_look_ahead()->set_momentum(*hyperparameters.momentum);
      return;
    default:
      return SetHyperparameters(hyperparameters, contribution->has_elastic(), job->mutable_optimizer());
  }
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
