#include "server/master/budget.h"

#include <glog/logging.h>

#include <algorithm>

#include "common/job/consistency.h"
#include "common/job/push_period.h"
#include "common/rounding.h"

namespace catchment {
namespace {

// Samples that one step of the job takes.
uint64_t SamplesPerStep(const Pace& pace) {
  return pace.synchronous ? pace.workers * pace.batch_size : pace.batch_size;
}

// Steps of the job, or minibatches, that make so many updates.
uint64_t StepsFor(uint64_t updates, const Pace& pace) {
  const uint64_t contributions =
      pace.synchronous ? updates : CeilDivide(updates * pace.contributions, pace.updates);
  return contributions * pace.steps_per_version;
}

Budget Until(const Position& end, uint64_t train_samples) {
  Budget budget;
  budget.end = end;
  budget.total_samples = end.epoch * train_samples + end.position;
  return budget;
}

Budget InSamples(uint64_t samples, uint64_t samples_per_step, uint64_t train_samples) {
  const uint64_t rest = RoundUp(samples % train_samples, samples_per_step);
  const uint64_t epoch = samples / train_samples;
  return Until(rest < train_samples ? Position{epoch, rest} : Position{epoch + 1, 0}, train_samples);
}

Budget InSteps(uint64_t steps, uint64_t samples_per_step, uint64_t train_samples) {
  const uint64_t steps_per_epoch = RoundUp(train_samples, samples_per_step) / samples_per_step;
  Budget budget;
  budget.steps = steps;
  budget.total_samples = steps / steps_per_epoch * train_samples +
                         std::min(train_samples, steps % steps_per_epoch * samples_per_step);
  return budget;
}

}  // namespace

Pace PaceOf(const v1::Job& job) {
  Pace pace;
  const v1::Consistency& consistency = job.algorithm().consistency();
  pace.synchronous = IsSynchronous(consistency);
  pace.batch_size = job.batch_size();
  pace.workers = job.workers();
  pace.steps_per_version = PushPeriod(job.algorithm().contribution());
  pace.contributes_first = ContributesFirst(job.algorithm().contribution());
  if (consistency.groups() > 0) {
    pace.contributions = pace.workers;
    pace.updates = consistency.groups();
  } else if (consistency.softsync() > 0) {
    pace.contributions = std::max<uint64_t>(1, pace.workers / consistency.softsync());
  }
  CHECK_GT(pace.batch_size, 0u);
  CHECK_GT(pace.workers, 0u);
  CHECK_GT(pace.steps_per_version, 0u);
  return pace;
}

Budget BudgetOf(const v1::Job& job, uint64_t train_samples) {
  const Pace pace = PaceOf(job);
  switch (job.budget_case()) {
    case v1::Job::kEpochs:
      return Until({job.epochs(), 0}, train_samples);
    case v1::Job::kSamples:
      return InSamples(job.samples(), SamplesPerStep(pace), train_samples);
    case v1::Job::kUpdates:
      return InSteps(StepsFor(job.updates(), pace), SamplesPerStep(pace), train_samples);
    case v1::Job::BUDGET_NOT_SET:
      break;
  }
  LOG(FATAL) << "a job without a budget: its defaults were not filled in";
}

}  // namespace catchment
