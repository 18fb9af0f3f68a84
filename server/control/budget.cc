#include "server/control/budget.h"

#include <glog/logging.h>

#include <algorithm>

#include "common/base/rounding.h"

namespace catchment {
namespace {

// Returns the number of steps of the job, or of minibatches, that make `updates` updates.
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

Budget InSamples(uint64_t samples, uint64_t samples_per_step, uint64_t steps_per_epoch,
                 uint64_t train_samples) {
  const uint64_t steps = CeilDivide(samples % train_samples, samples_per_step);
  const uint64_t epoch = samples / train_samples;
  return Until(steps < steps_per_epoch ? Position{epoch, steps * samples_per_step} : Position{epoch + 1, 0},
               train_samples);
}

Budget InSteps(uint64_t steps, uint64_t samples_per_step, uint64_t steps_per_epoch, uint64_t train_samples) {
  Budget budget;
  budget.steps = steps;
  budget.total_samples = steps / steps_per_epoch * train_samples +
                         std::min(train_samples, steps % steps_per_epoch * samples_per_step);
  return budget;
}

}  // namespace

Budget BudgetOf(const v1::Job& job, uint64_t train_samples) {
  const Pace pace = PaceOf(job);
  const uint64_t steps_per_epoch = StepsPerEpoch(job, train_samples);
  train_samples = SamplesPerEpoch(job, train_samples);
  switch (job.budget_case()) {
    case v1::Job::kEpochs:
      return Until({job.epochs(), 0}, train_samples);
    case v1::Job::kSamples:
      return InSamples(job.samples(), SamplesPerStep(job), steps_per_epoch, train_samples);
    case v1::Job::kUpdates:
      return InSteps(StepsFor(job.updates(), pace), SamplesPerStep(job), steps_per_epoch, train_samples);
    case v1::Job::BUDGET_NOT_SET:
      break;
  }
  LOG(FATAL) << "the job has no budget: its defaults were not filled in";
}

}  // namespace catchment
