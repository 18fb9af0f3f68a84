#include "server/control/job_state_machine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace catchment {

void JobStateMachine::RequestStop(std::string reason) {
  if (stop_requested_) return;
  stop_requested_ = true;
  stop_reason_ = reason.empty() ? "a stop was requested" : std::move(reason);
}

void JobStateMachine::StopNow(std::string reason, double now) {
  if (ended()) return;
  stop_requested_ = true;
  stop_reason_ = std::move(reason);
  outcome_ = Outcome::kStopped;
  Enter(State::kEnded, {}, now);
}

void JobStateMachine::EndEarly(std::string reason) {
  if (open() && !stop_requested_ && early_reason_.empty()) early_reason_ = std::move(reason);
}

void JobStateMachine::Fail(std::string reason, double now) {
  if (ended()) return;
  failure_ = failure_.empty() ? std::move(reason) : absl::StrCat(failure_, "; then ", reason);
  outcome_ = Outcome::kFailed;
  Enter(State::kEnded, {}, now);
}

void JobStateMachine::FailAfterSaving(std::string reason, double now) {
  if (!begun_ || !open()) return Fail(std::move(reason), now);
  failure_ = std::move(reason);
  outcome_ = Outcome::kFailed;
  // A server that is lost now ends the job, too.
  stop_requested_ = true;
  Enter(State::kLeaving, {}, now);
}

bool JobStateMachine::Step(const Facts& facts, double now) {
  workers_now_ = facts.workers;
  if (facts.bytes_pushed != bytes_pushed_) pushed_at_ = now;
  bytes_pushed_ = facts.bytes_pushed;
  const State before = state_;
  const State next = Next(facts, now);
  if (next != state_) Enter(next, facts, now);
  return state_ != before;
}

JobStateMachine::State JobStateMachine::Next(const Facts& facts, double now) {
  switch (state_) {
    case State::kWaiting:
    case State::kTraining:
      return WhileOpen(facts, now);
    case State::kLeaving:
      return facts.workers == 0 ? State::kSettling : state_;
    case State::kSettling:
      return facts.settled ? State::kSaving : state_;
    case State::kSaving:
      return WhileSaving(facts, now);
    case State::kEvaluating:
      if (facts.evaluated || stop_requested_) return State::kEnded;
      unscored_ = !MayBeEvaluated(facts, now);
      return unscored_ ? State::kEnded : state_;
    case State::kEnded: {
      // Workers that have not registered again after a loss have not heard of the end.
      const bool others_return = expected_until_ && !begun_ && now < *expected_until_;
      const bool all_notified =
          facts.workers + facts.staying + facts.evaluators == 0 && !facts.watched && !others_return;
      return outputs_written_ && (all_notified || now - entered_ >= kLeaveSeconds) ? State::kOver : state_;
    }
    case State::kOver:
      break;
  }
  return state_;
}

JobStateMachine::State JobStateMachine::WhileOpen(const Facts& facts, double now) {
  if (facts.budget_done) {
    early_reason_.clear();
    return State::kLeaving;
  }
  if (!early_reason_.empty()) return State::kLeaving;
  if (stop_requested_ && !facts.drains) {
    outcome_ = Outcome::kStopped;
    return State::kLeaving;
  }
  const bool expects_no_more = begun_ || (expected_until_ && now >= *expected_until_);
  return facts.workers >= (expects_no_more ? 1 : workers_) ? State::kTraining : State::kWaiting;
}

bool JobStateMachine::MayBeEvaluated(const Facts& facts, double now) {
  awaits_evaluator_ = facts.evaluators == 0;
  return facts.evaluators > 0 || (facts.expected_evaluators > 0 && now - entered_ < facts.evaluator_patience);
}

JobStateMachine::State JobStateMachine::WhileSaving(const Facts& facts, double now) {
  if (facts.saved) {
    const bool has_evaluators = facts.evaluators + facts.expected_evaluators > 0;
    const bool evaluate = outcome_ == Outcome::kDone && has_evaluators && !stop_requested_;
    return evaluate ? State::kEvaluating : State::kEnded;
  }
  if (save_error_.empty()) save_error_since_ = now;
  save_error_ = facts.save_error;
  if (!save_error_.empty() && now - save_error_since_ >= kSaveSeconds) {
    failed_to_save_ = failure_.empty();
    Fail(absl::StrCat("the last checkpoint cannot be saved: ", save_error_,
                      "; free disk space, or make the directory writable for the server"),
         now);
  }
  return state_;
}

void JobStateMachine::Enter(State state, const Facts& facts, double now) {
  trained_seconds_ = trained_seconds(now);
  state_ = state;
  entered_ = now;
  if (state == State::kTraining) begun_ = true;
  if (state == State::kSaving) final_checkpoint_ = NumberFinalCheckpoint(facts);
}

uint64_t JobStateMachine::NumberFinalCheckpoint(const Facts& facts) const {
  // The number of the checkpoint that the job was resumed from may be higher than the version of any shard:
  // it is the highest version of shards that differed, or the checkpoint was taken with another number of
  // servers. It must not be used again.
  const uint64_t lowest = begun_ ? facts.earlier_checkpoint + 1 : facts.earlier_checkpoint;
  return std::max({uint64_t{1}, facts.highest_version, lowest, facts.used_checkpoint + 1});
}

double JobStateMachine::trained_seconds(double now) const {
  return trained_seconds_ + (state_ == State::kTraining ? now - entered_ : 0);
}

v1::JobStatus::Phase JobStateMachine::phase() const {
  switch (state_) {
    case State::kWaiting:
      return v1::JobStatus::WAITING;
    case State::kTraining:
      return v1::JobStatus::TRAINING;
    case State::kLeaving:
    case State::kSettling:
    case State::kSaving:
    case State::kEvaluating:
      return v1::JobStatus::FINISHING;
    case State::kEnded:
    case State::kOver:
      break;
  }
  if (outcome_ == Outcome::kFailed) return v1::JobStatus::FAILED;
  return outcome_ == Outcome::kStopped ? v1::JobStatus::STOPPED : v1::JobStatus::DONE;
}

std::string JobStateMachine::reason() const {
  const std::string why = outcome_ == Outcome::kStopped  ? absl::StrCat("stopping (", stop_reason_, "): ")
                          : outcome_ == Outcome::kFailed ? absl::StrCat("failing (", failure_, "): ")
                          : !early_reason_.empty()       ? absl::StrCat("done (", early_reason_, "): ")
                                                         : "";
  switch (state_) {
    case State::kWaiting:
      if (begun_) return "no worker is left: waiting for new workers";
      return absl::StrCat("waiting for workers: ", workers_now_, " of ", workers_, " have registered");
    case State::kTraining:
      if (!stop_requested_) return "";
      return absl::StrCat("stopping (", stop_reason_, "): workers finish their leases and save their states");
    case State::kLeaving:
      return absl::StrCat(why, "waiting for ", workers_now_, " workers to leave");
    case State::kSettling:
      return absl::StrCat(why, "waiting for the last reports of the servers");
    case State::kSaving:
      return absl::StrCat(why, "saving the last checkpoint",
                          save_error_.empty() ? "" : ", which failed so far: ", save_error_);
    case State::kEvaluating:
      return absl::StrCat("waiting for the final evaluation",
                          awaits_evaluator_ ? ": no evaluator is there yet" : "");
    case State::kEnded:
    case State::kOver:
      break;
  }
  if (outcome_ == Outcome::kFailed) return failure_;
  if (outcome_ == Outcome::kStopped) return stop_reason_;
  return unscored_ ? "without a score of its final weights: no evaluator is left" : "";
}

v1::StateMachineImage JobStateMachine::Save(double now) const {
  v1::StateMachineImage image;
  image.set_state(static_cast<uint32_t>(state_));
  image.set_seconds_in_state(now - entered_);
  image.set_trained_seconds(trained_seconds_);
  image.set_begun(begun_);
  image.set_stop_requested(stop_requested_);
  image.set_outcome(static_cast<uint32_t>(outcome_));
  image.set_stop_reason(stop_reason_);
  image.set_early_reason(early_reason_);
  image.set_failure(failure_);
  image.set_failed_to_save(failed_to_save_);
  image.set_final_checkpoint(final_checkpoint_);
  return image;
}

void JobStateMachine::Restore(const v1::StateMachineImage& image, double now) {
  state_ = static_cast<State>(image.state());
  entered_ = now - image.seconds_in_state();
  pushed_at_ = now;
  trained_seconds_ = image.trained_seconds();
  begun_ = image.begun();
  stop_requested_ = image.stop_requested();
  outcome_ = static_cast<Outcome>(image.outcome());
  stop_reason_ = image.stop_reason();
  early_reason_ = image.early_reason();
  failure_ = image.failure();
  failed_to_save_ = image.failed_to_save();
  final_checkpoint_ = image.final_checkpoint();
}

}  // namespace catchment
