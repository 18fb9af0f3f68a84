#include "common/job/local_steps.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

bool MovesByTheGradient(const v1::Optimizer& optimizer) {
  return optimizer.kind() == v1::Optimizer::SGD && optimizer.learning_rate() == 1 &&
         optimizer.momentum() == 0 && optimizer.weight_decay() == 0 && !optimizer.has_clip_value() &&
         !optimizer.has_clip_norm() && optimizer.schedule().decay() == v1::Schedule::CONSTANT &&
         optimizer.schedule().warmup() == 0;
}

absl::Status Check(const std::string& path, const v1::Optimizer& optimizer) {
  if (MovesByTheGradient(optimizer)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": the program makes local steps with its own optimizer, so the job must not change them; set ",
      path, "={kind: SGD, learning_rate: 1, momentum: 0, schedule { decay: CONSTANT }}"));
}

}  // namespace

const v1::Optimizer& IdentityOptimizer() {
  static const v1::Optimizer* const kIdentity = [] {
    auto* const identity = new v1::Optimizer;
    identity->set_kind(v1::Optimizer::SGD);
    identity->set_learning_rate(1);
    identity->set_momentum(0);
    identity->mutable_schedule()->set_decay(v1::Schedule::CONSTANT);
    return identity;
  }();
  return *kIdentity;
}

absl::Status CheckLocalSteps(const v1::Job& job) {
  const v1::Contribution& contribution = job.algorithm().contribution();
  if (contribution.has_pseudo_gradient()) {
    return Check("algorithm.contribution.pseudo_gradient.local_optimizer",
                 contribution.pseudo_gradient().local_optimizer());
  }
  if (contribution.has_elastic()) return Check("optimizer", job.optimizer());
  return absl::InvalidArgumentError(
      "algorithm.contribution: the program makes local steps with its own optimizer, which only "
      "pseudo_gradient and elastic support: use the preset local_sgd, diloco, streaming_diloco, muloco or "
      "easgd, or leave out the program's optimizer");
}

}  // namespace catchment
