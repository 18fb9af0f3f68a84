#include "server/control/sample_source.h"

#include <glog/logging.h>

#include <algorithm>

#include "common/base/rounding.h"

namespace catchment {

SampleSource::SampleSource(uint64_t samples_per_epoch, std::optional<Position> end, bool merges_last,
                           const v1::MasterState& from)
    : samples_per_epoch_(samples_per_epoch),
      end_(end),
      merges_last_(merges_last),
      next_{from.next_epoch(), from.next_position()} {
  CHECK_GT(samples_per_epoch_, 0u);
  // The job that goes on may train with fewer samples of an epoch than the one before.
  if (next_.position >= samples_per_epoch_) next_ = {next_.epoch + 1, 0};
  for (const v1::SampleSpan& span : from.pending()) pool_.Add(FromProto(span));
}

Step SampleSource::Take(uint64_t size) {
  const uint64_t epoch = pool_.empty() ? next_.epoch : pool_.first_epoch();
  Step step;
  uint64_t left = size;
  if (const uint64_t all = merges_last_ ? LeftOf(epoch) : 0; all < 2 * size) left = std::max(size, all);
  while (left > 0 && !pool_.empty() && pool_.first_epoch() == epoch) {
    const Span span = pool_.TakeFront(left);
    left -= span.size();
    Append(span, &step);
  }
  if (left > 0 && next_.epoch == epoch) Append(TakeFresh(left), &step);
  return step;
}

uint64_t SampleSource::remaining() const {
  CHECK(end_.has_value());
  const uint64_t end = Linear(*end_);
  const uint64_t next = Linear(next_);
  return pool_.num_samples() + (end > next ? end - next : 0);
}

uint64_t SampleSource::LeftOf(uint64_t epoch) const {
  return pool_.SamplesOf(epoch) + (next_.epoch == epoch ? FreshOfEpoch() : 0);
}

uint64_t SampleSource::FreshOfEpoch() const {
  if (!end_ || end_->epoch > next_.epoch) return samples_per_epoch_ - next_.position;
  return *end_ > next_ ? end_->position - next_.position : 0;
}

Span SampleSource::TakeFresh(uint64_t at_most) {
  const uint64_t size = std::min(at_most, FreshOfEpoch());
  const Span span{next_.epoch, next_.position, next_.position + size};
  next_.position += size;
  if (next_.position == samples_per_epoch_) next_ = {next_.epoch + 1, 0};
  return span;
}

v1::SampleSourceImage SampleSource::Save() const {
  v1::SampleSourceImage image;
  for (const Span& span : pool_.spans()) *image.add_returned() = ToProto(span);
  image.set_next_epoch(next_.epoch);
  image.set_next_position(next_.position);
  return image;
}

void SampleSource::Restore(const v1::SampleSourceImage& image) {
  pool_ = SpanPool();
  for (const v1::SampleSpan& span : image.returned()) pool_.Add(FromProto(span));
  next_ = {image.next_epoch(), image.next_position()};
}

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
