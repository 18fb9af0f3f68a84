#include "worker/loop/step_loop.h"

#include "common/base/status_macros.h"
#include "common/trace/recorder.h"

namespace catchment {

double SlowdownOf(const v1::Job& job, uint32_t worker) {
  for (const v1::Straggler& straggler : job.faults().stragglers()) {
    if (straggler.worker() == worker) return straggler.slowdown_factor();
  }
  return 1;
}

absl::Status StepLoop::Run() {
  const absl::Status status = RunSteps();
  const bool finish = status.ok() && started_ && !surroundings_.IsEnded();
  const absl::Status last = finish ? algorithm_.Finish() : algorithm_.Settle();
  if (last.ok()) Report();
  return status.ok() ? last : status;
}

absl::Status StepLoop::RunSteps() {
  while (!surroundings_.IsEnded()) {
    // The master may grant nothing more until it knows that the last step is done.
    if (!surroundings_.HasMinibatch()) {
      if (algorithm_.in_flight()) {
        RETURN_IF_ERROR(algorithm_.Settle());
      }
      Report();
    }
    ASSIGN_OR_RETURN(const std::optional<Minibatch> next, surroundings_.NextMinibatch());
    if (!next.has_value()) break;
    const Minibatch& minibatch = *next;
    if (LeaseSource::IsRequest(minibatch.tag)) {
      RETURN_IF_ERROR(HandleRequest(minibatch.tag));
      continue;
    }
    if (!started_) {
      RETURN_IF_ERROR(Start());
    }
    RETURN_IF_ERROR(RunStep(minibatch));
  }
  return absl::OkStatus();
}

absl::Status StepLoop::Start() {
  waited_to_start_ = surroundings_.WaitedSeconds();
  RETURN_IF_ERROR(algorithm_.Start(leases_.first_version()));
  started_ = true;
  return surroundings_.OnStarted();
}

absl::Status StepLoop::HandleRequest(uint64_t tag) {
  if (const uint64_t checkpoint = LeaseSource::CheckpointOf(tag)) {
    RETURN_IF_ERROR(algorithm_.Settle());
    return surroundings_.SaveState(checkpoint);
  }
  if (tag == LeaseSource::kFlush) return algorithm_.Finish();
  surroundings_.End();
  return absl::OkStatus();
}

absl::Status StepLoop::RunStep(const Minibatch& minibatch) {
  const TraceScope scope("step");
  absl::StatusOr<Score> score = Score();
  const auto gradient = [&](absl::Span<const float> weights, absl::Span<float> gradient,
                            PassObserver* observer) {
    score = surroundings_.Compute(weights, gradient, observer);
  };
  const double start = surroundings_.Now();
  const double blocked = surroundings_.BlockedSeconds();
  const Algorithm::Step step = leases_.StepOf(minibatch.tag, minibatch.spans, samples_per_epoch_);
  surroundings_.OnStep(minibatch, step);
  const absl::Status run = algorithm_.Run(step, gradient);
  RETURN_IF_ERROR(score.status());
  RETURN_IF_ERROR(surroundings_.Failure());
  RETURN_IF_ERROR(run);
  const double blocked_in_step = surroundings_.BlockedSeconds() - blocked;
  const double seconds = surroundings_.Now() - start - blocked_in_step;

  // While the push of this step is in progress, only the steps before it are done.
  if (algorithm_.in_flight()) Report();
  const LeaseSource::Place place = LeaseSource::PlaceOf(minibatch.tag);
  progress_.set_steps(progress_.steps() + 1);
  progress_.set_samples(progress_.samples() + step.samples);
  progress_.set_loss_sum(progress_.loss_sum() + score->loss_sum);
  progress_.set_correct(progress_.correct() + score->correct);
  surroundings_.AddMeasurements(&progress_);
  progress_.set_compute_seconds(progress_.compute_seconds() + seconds);
  progress_.set_lease(place.lease);
  progress_.set_lease_steps(place.step);
  if (!algorithm_.in_flight()) Report();
  return absl::OkStatus();
}

void StepLoop::Report() {
  progress_.set_data_seconds(surroundings_.WaitedSeconds() - waited_to_start_);
  surroundings_.Publish(&progress_);
}

}  // namespace catchment
