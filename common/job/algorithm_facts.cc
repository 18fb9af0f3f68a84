#include "common/job/algorithm_facts.h"

#include <glog/logging.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/rounding.h"
#include "common/job/compensation_kinds.h"
#include "common/job/consistency_kinds.h"
#include "common/job/contribution_kinds.h"
#include "common/job/data_sources.h"

namespace catchment {

uint32_t NumGroups(const v1::Consistency& consistency) {
  const auto groups = KindOf(consistency).groups;
  return groups == nullptr ? 0 : groups(consistency);
}

uint32_t BackupWorkers(const v1::Consistency& consistency) {
  const auto backup_workers = KindOf(consistency).backup_workers;
  return backup_workers == nullptr ? 0 : backup_workers(consistency);
}

bool IsBuffered(const v1::Consistency& consistency) { return KindOf(consistency).buffered != nullptr; }

uint32_t BufferedContributions(const v1::Consistency& consistency, uint32_t workers) {
  return IsBuffered(consistency) ? KindOf(consistency).buffered(consistency, workers) : 1;
}

double ContributionsPerUpdate(const v1::Consistency& consistency, uint32_t workers) {
  const uint32_t groups = NumGroups(consistency);
  if (groups == 0) return BufferedContributions(consistency, workers);
  return std::max(1.0, static_cast<double>(workers) / groups - BackupWorkers(consistency));
}

std::optional<uint32_t> StalenessBound(const v1::Consistency& consistency) {
  const auto bound = KindOf(consistency).staleness_bound;
  return bound == nullptr ? std::nullopt : std::make_optional(bound(consistency));
}

bool CorrectsGradients(const v1::Compensation& compensation) {
  return KindOf(compensation).corrects_gradients;
}

uint32_t PushPeriod(const v1::Contribution& contribution) {
  return contribution.kind_case() == v1::Contribution::KIND_NOT_SET
             ? 1
             : KindOf(contribution).period(contribution);
}

bool Overlaps(const v1::Job& job) {
  return job.algorithm().contribution().pseudo_gradient().overlap_steps() > 0;
}

Pace PaceOf(const v1::Job& job) {
  Pace pace;
  const v1::Consistency& consistency = job.algorithm().consistency();
  pace.synchronous = IsSynchronous(consistency);
  pace.batch_size = job.batch_size();
  pace.workers = job.workers();
  pace.steps_per_version = PushPeriod(job.algorithm().contribution());
  pace.contributes_first = KindOf(job.algorithm().contribution()).contributes_first;
  if (const uint64_t fragments = job.algorithm().contribution().pseudo_gradient().fragments();
      pace.synchronous && fragments > 1) {
    pace.unsent_steps = pace.steps_per_version - CeilDivide(pace.steps_per_version, fragments);
  }
  pace.merges_last = job.last_minibatch() == v1::Job::MERGE;
  if (const uint32_t groups = NumGroups(consistency); groups > 0) {
    pace.contributions = pace.workers;
    pace.updates = groups;
  } else {
    pace.contributions = BufferedContributions(consistency, pace.workers);
  }
  CHECK_GT(pace.batch_size, 0u);
  CHECK_GT(pace.workers, 0u);
  CHECK_GT(pace.steps_per_version, 0u);
  return pace;
}

namespace {

// Returns true if each step of the job has a whole minibatch for each worker.
bool HasWholeSteps(const v1::Job& job) {
  const uint64_t train_samples = ShapeOf(job.data()).train_samples, step = SamplesPerStep(job);
  return train_samples >= step && SamplesPerEpoch(job, train_samples) % step == 0 &&
         job.samples() % step == 0;
}

}  // namespace

bool AddsUpContributions(const v1::Job& job) {
  const v1::Algorithm& algorithm = job.algorithm();
  const v1::Compensation& compensation = algorithm.compensation();
  return NumGroups(algorithm.consistency()) > 0 && !algorithm.contribution().has_elastic() &&
         KindOf(compensation).kind == v1::Compensation::kNone && !compensation.has_delay_adaptive() &&
         !compensation.has_step_bound() && (!job.deterministic() || HasWholeSteps(job));
}

uint64_t SamplesPerStep(const v1::Job& job) {
  return uint64_t{job.batch_size()} * (IsSynchronous(job.algorithm().consistency()) ? job.workers() : 1);
}

uint64_t SamplesPerEpoch(const v1::Job& job, uint64_t train_samples) {
  const uint64_t step = SamplesPerStep(job);
  if (job.last_minibatch() != v1::Job::DROP || train_samples < step) return train_samples;
  return train_samples - train_samples % step;
}

uint64_t StepsPerEpoch(const v1::Job& job, uint64_t train_samples) {
  const uint64_t samples = SamplesPerEpoch(job, train_samples), step = SamplesPerStep(job);
  return job.last_minibatch() == v1::Job::MERGE && samples >= step ? samples / step
                                                                   : CeilDivide(samples, step);
}

uint32_t LargestMinibatch(const v1::Job& job) {
  return (job.last_minibatch() == v1::Job::MERGE ? 2 : 1) * job.batch_size();
}

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
      "pseudo_gradient and elastic support: use a preset such as local_sgd, diloco or easgd, or leave out the "
      "program's optimizer");
}

}  // namespace catchment
