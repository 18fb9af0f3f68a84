#include "common/job/algorithm_facts.h"

#include <glog/logging.h>

#include <algorithm>

#include "common/base/rounding.h"
#include "common/job/compensation_kinds.h"
#include "common/job/contribution_kinds.h"

namespace catchment {

uint32_t NumGroups(const v1::Consistency& consistency) {
  return consistency.has_synchronous() || consistency.has_quorum() ? 1 : consistency.grouped().groups();
}

uint32_t BackupWorkers(const v1::Consistency& consistency) {
  return consistency.has_synchronous() ? consistency.synchronous().backup_workers()
                                       : consistency.grouped().backup_workers();
}

uint32_t SoftsyncContributions(const v1::NSoftsync& softsync, uint32_t workers) {
  const uint32_t most = std::max(1u, workers);
  return softsync.amount_case() == v1::NSoftsync::kSize ? std::min(softsync.size(), most)
                                                        : std::max(1u, most / std::max(1u, softsync.n()));
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
  } else if (consistency.has_n_softsync()) {
    pace.contributions = SoftsyncContributions(consistency.n_softsync(), pace.workers);
  }
  CHECK_GT(pace.batch_size, 0u);
  CHECK_GT(pace.workers, 0u);
  CHECK_GT(pace.steps_per_version, 0u);
  return pace;
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

}  // namespace catchment
