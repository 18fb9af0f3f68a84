#include "cli/compare/knobs.h"

#include "absl/strings/str_cat.h"
#include "cli/text.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

constexpr float kMomenta[] = {0, 0.3f, 0.6f, 0.9f};

Knobs KnobsOf(const v1::Optimizer& optimizer) {
  Knobs knobs{optimizer.learning_rate(), std::nullopt};
  if (FindOptimizerKind(optimizer.kind())->HasField("momentum")) knobs.momentum = optimizer.momentum();
  return knobs;
}

// There is no Nesterov without momentum, and elastic averaging has no other kind.
void SetKnobs(const Knobs& knobs, bool elastic, v1::Optimizer* optimizer) {
  optimizer->set_learning_rate(knobs.learning_rate);
  if (!knobs.momentum.has_value()) return;
  optimizer->set_momentum(*knobs.momentum);
  if (optimizer->kind() == v1::Optimizer::SGD) {
    optimizer->set_nesterov(*knobs.momentum > 0 && (elastic || optimizer->nesterov()));
  }
}

}  // namespace

Knobs KnobsOf(const v1::Job& job) {
  const v1::Contribution& contribution = job.algorithm().contribution();
  switch (contribution.kind_case()) {
    case v1::Contribution::kPseudoGradient:
      return KnobsOf(contribution.pseudo_gradient().local_optimizer());
    case v1::Contribution::kEnergyMatching:
      return {contribution.energy_matching().learning_rate(), contribution.energy_matching().momentum()};
    case v1::Contribution::kLookAhead:
      return {job.optimizer().learning_rate(), contribution.look_ahead().momentum()};
    default:
      return KnobsOf(job.optimizer());
  }
}

void SetKnobs(const Knobs& knobs, v1::Job* job) {
  v1::Contribution* const contribution = job->mutable_algorithm()->mutable_contribution();
  switch (contribution->kind_case()) {
    case v1::Contribution::kPseudoGradient:
      return SetKnobs(knobs, /*elastic=*/false,
                      contribution->mutable_pseudo_gradient()->mutable_local_optimizer());
    case v1::Contribution::kEnergyMatching:
      contribution->mutable_energy_matching()->set_learning_rate(knobs.learning_rate);
      contribution->mutable_energy_matching()->set_momentum(*knobs.momentum);
      return;
    case v1::Contribution::kLookAhead:
      job->mutable_optimizer()->set_learning_rate(knobs.learning_rate);
      contribution->mutable_look_ahead()->set_momentum(*knobs.momentum);
      return;
    default:
      return SetKnobs(knobs, contribution->has_elastic(), job->mutable_optimizer());
  }
}

std::vector<Knobs> SearchGrid(const Knobs& start) {
  std::vector<Knobs> grid;
  for (float rate : {start.learning_rate, start.learning_rate / 10}) {
    if (!start.momentum.has_value()) {
      grid.push_back({rate, std::nullopt});
      continue;
    }
    for (float momentum : kMomenta) grid.push_back({rate, momentum});
  }
  return grid;
}

std::string ToString(const Knobs& knobs) {
  const std::string rate = absl::StrCat("learning rate ", Short(knobs.learning_rate));
  return knobs.momentum.has_value() ? absl::StrCat(rate, ", momentum ", Short(*knobs.momentum)) : rate;
}

}  // namespace catchment
