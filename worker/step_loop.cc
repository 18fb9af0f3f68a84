#include "worker/step_loop.h"

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
        if (absl::Status status = algorithm_.Settle(); !status.ok()) return status;
      }
      Report();
    }
    const absl::StatusOr<std::optional<Minibatch>> next = surroundings_.NextMinibatch();
    if (!next.ok()) return next.status();
    if (!next->has_value()) break;
    const Minibatch& minibatch = **next;
    if (LeaseSource::IsRequest(minibatch.tag)) {
      if (absl::Status status = HandleRequest(minibatch.tag); !status.ok()) return status;
      continue;
    }
    if (!started_) {
      if (absl::Status status = Start(); !status.ok()) return status;
    }
    if (absl::Status status = RunStep(minibatch); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status StepLoop::Start() {
  waited_to_start_ = surroundings_.WaitedSeconds();
  if (absl::Status status = algorithm_.Start(leases_.first_version()); !status.ok()) return status;
  started_ = true;
  return surroundings_.OnStarted();
}

absl::Status StepLoop::HandleRequest(uint64_t tag) {
  if (const uint64_t checkpoint = LeaseSource::CheckpointOf(tag)) {
    if (absl::Status status = algorithm_.Settle(); !status.ok()) return status;
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
  if (!score.ok()) return score.status();
  if (absl::Status status = surroundings_.Failure(); !status.ok()) return status;
  if (!run.ok()) return run;
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
