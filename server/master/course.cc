#include "server/master/course.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace catchment {

void Course::RequestStop(std::string reason) {
  if (stop_requested_) return;
  stop_requested_ = true;
  stop_reason_ = reason.empty() ? "a stop was asked for" : std::move(reason);
}

void Course::EndEarly(std::string reason) {
  if (open() && !stop_requested_ && early_reason_.empty()) early_reason_ = std::move(reason);
}

void Course::Fail(std::string reason, double now) {
  if (ended()) return;
  failure_ = std::move(reason);
  outcome_ = Outcome::kFailed;
  Enter(Stage::kEnded, {}, now);
}

bool Course::Step(const Facts& facts, double now) {
  workers_now_ = facts.workers;
  if (facts.bytes_pushed != bytes_pushed_) pushed_at_ = now;
  bytes_pushed_ = facts.bytes_pushed;
  const Stage before = stage_;
  const Stage next = Next(facts, now);
  if (next != stage_) Enter(next, facts, now);
  return stage_ != before;
}

Course::Stage Course::Next(const Facts& facts, double now) {
  switch (stage_) {
    case Stage::kWaiting:
    case Stage::kTraining:
      return WhileOpen(facts);
    case Stage::kLeaving:
      return facts.workers == 0 ? Stage::kSettling : stage_;
    case Stage::kSettling:
      return facts.settled ? Stage::kSaving : stage_;
    case Stage::kSaving:
      return WhileSaving(facts, now);
    case Stage::kEvaluating:
      return facts.evaluated || facts.evaluators == 0 || stop_requested_ ? Stage::kEnded : stage_;
    case Stage::kEnded: {
      const bool told = facts.workers + facts.evaluators == 0 && !facts.watched;
      return outputs_written_ && (told || now - entered_ >= kLeaveSeconds) ? Stage::kOver : stage_;
    }
    case Stage::kOver:
      break;
  }
  return stage_;
}

Course::Stage Course::WhileOpen(const Facts& facts) {
  if (facts.budget_done) {
    early_reason_.clear();
    return Stage::kLeaving;
  }
  if (!early_reason_.empty()) return Stage::kLeaving;
  if (stop_requested_ && !facts.drains) {
    outcome_ = Outcome::kStopped;
    return Stage::kLeaving;
  }
  return facts.workers >= (begun_ ? 1 : workers_) ? Stage::kTraining : Stage::kWaiting;
}

Course::Stage Course::WhileSaving(const Facts& facts, double now) {
  if (facts.saved) {
    const bool evaluate = outcome_ == Outcome::kDone && facts.evaluators > 0 && !stop_requested_;
    return evaluate ? Stage::kEvaluating : Stage::kEnded;
  }
  if (save_error_.empty()) save_error_since_ = now;
  save_error_ = facts.save_error;
  if (!save_error_.empty() && now - save_error_since_ >= kSaveSeconds) {
    failed_to_save_ = true;
    Fail(absl::StrCat("the last checkpoint cannot be saved: ", save_error_,
                      "; make room, or let the server write there"),
         now);
  }
  return stage_;
}

void Course::Enter(Stage stage, const Facts& facts, double now) {
  trained_seconds_ = trained_seconds(now);
  stage_ = stage;
  entered_ = now;
  if (stage == Stage::kTraining) begun_ = true;
  if (stage == Stage::kSaving) final_checkpoint_ = NumberFinalCheckpoint(facts);
}

uint64_t Course::NumberFinalCheckpoint(const Facts& facts) const {
  // The checkpoint that the job continued from may have a higher number than any shard has a version: it was
  // named after the highest of shards that differed, or was made with other servers. Its number cannot be
  // used again.
  const uint64_t lowest = begun_ ? facts.earlier_checkpoint + 1 : facts.earlier_checkpoint;
  return std::max({uint64_t{1}, facts.highest_version, lowest, facts.used_checkpoint + 1});
}

double Course::trained_seconds(double now) const {
  return trained_seconds_ + (stage_ == Stage::kTraining ? now - entered_ : 0);
}

v1::JobStatus::Phase Course::phase() const {
  switch (stage_) {
    case Stage::kWaiting:
      return v1::JobStatus::WAITING;
    case Stage::kTraining:
      return v1::JobStatus::TRAINING;
    case Stage::kLeaving:
    case Stage::kSettling:
    case Stage::kSaving:
    case Stage::kEvaluating:
      return v1::JobStatus::FINISHING;
    case Stage::kEnded:
    case Stage::kOver:
      break;
  }
  if (outcome_ == Outcome::kFailed) return v1::JobStatus::FAILED;
  return outcome_ == Outcome::kStopped ? v1::JobStatus::STOPPED : v1::JobStatus::DONE;
}

std::string Course::reason() const {
  const std::string why = outcome_ == Outcome::kStopped ? absl::StrCat("stopping (", stop_reason_, "): ")
                          : !early_reason_.empty()      ? absl::StrCat("done (", early_reason_, "): ")
                                                        : "";
  switch (stage_) {
    case Stage::kWaiting:
      if (begun_) return "no workers are left: waiting for new ones";
      return absl::StrCat("waiting for workers: ", workers_now_, " of ", workers_, " are here");
    case Stage::kTraining:
      if (!stop_requested_) return "";
      return absl::StrCat("stopping (", stop_reason_,
                          "): workers finish what was assigned, and save their states");
    case Stage::kLeaving:
      return absl::StrCat(why, "waiting for ", workers_now_, " workers to leave");
    case Stage::kSettling:
      return absl::StrCat(why, "waiting for the last reports of the servers");
    case Stage::kSaving:
      return absl::StrCat(why, "saving the last checkpoint",
                          save_error_.empty() ? "" : ", which failed so far: ", save_error_);
    case Stage::kEvaluating:
      return "waiting for the final evaluation";
    case Stage::kEnded:
    case Stage::kOver:
      break;
  }
  if (outcome_ == Outcome::kFailed) return failure_;
  return outcome_ == Outcome::kStopped ? stop_reason_ : "";
}

}  // namespace catchment
