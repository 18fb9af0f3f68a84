#include "server/control/job_progress.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/job/algorithm_facts.h"
#include "server/control/job_state_machine.h"
#include "server/control/lease_ledger.h"
#include "server/control/stated_facts.h"

namespace catchment {
namespace {

constexpr double kWatchSeconds = 1;  // between two checks of the members' progress
// A worker that must leave finishes a step, which may take longer than usual, and then pushes. Servers count
// the bytes of a push only when a block is complete.
constexpr double kStepsToLeave = 3;
constexpr double kBlocksToLeave = 2;

absl::Status CheckProgress(const v1::Progress& progress, const Member& worker) {
  StatedFacts facts(worker);
  if (progress.lease() == worker.lease.number())
    facts.Set(v1::Owner::LEASE_STEPS, worker.lease.minibatches_size());
  return facts.Check(progress);
}

double MeanStepSeconds(const Member& worker) {
  const uint64_t steps = worker.progress.steps();
  return steps == 0 ? 0 : worker.progress.compute_seconds() / static_cast<double>(steps);
}

}  // namespace

JobProgress::JobProgress(const v1::Job& job, const Membership& members, EventLog* events, const Clock* clock)
    : job_(job),
      members_(members),
      events_(events),
      clock_(clock),
      watch_(job.faults().stuck_seconds(), job.faults().hold_up_seconds(),
             job.faults().heartbeat_timeout_seconds()) {}

absl::Status JobProgress::Observe(const v1::Progress& progress, Member* member) {
  if (member->role != v1::WORKER) {
    member->progress.set_steps(std::max(member->progress.steps(), progress.steps()));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckProgress(progress, *member));
  const v1::Progress& before = member->progress;
  // Calls of one worker may arrive out of order.
  if (progress.steps() < before.steps() || progress.samples() < before.samples()) return absl::OkStatus();
  meter_.Add(before, progress, clock_->Now());
  work_.Add(before, progress);
  member->progress = progress;
  return absl::OkStatus();
}

void JobProgress::Forget(uint64_t incarnation) {
  watch_.Forget(incarnation);
  no_progress_logged_.erase(incarnation);
}

bool JobProgress::IsDue() {
  if (clock_->Now() - watched_at_ < kWatchSeconds) return false;
  watched_at_ = clock_->Now();
  return true;
}

std::vector<Member> JobProgress::FindStuck(const std::vector<const Member*>& members,
                                           absl::FunctionRef<ProgressWatch::Work(const Member&)> work_of) {
  std::vector<Member> stuck;
  for (const Member* member : members) {
    const ProgressWatch::Work work = work_of(*member);
    const ProgressWatch::Verdict verdict = watch_.Observe(member->incarnation, work, clock_->Now());
    if (verdict == ProgressWatch::Verdict::kFine) no_progress_logged_.erase(member->incarnation);
    if (verdict == ProgressWatch::Verdict::kStuck) stuck.push_back(*member);
    if (verdict != ProgressWatch::Verdict::kNoProgress || member->role != v1::WORKER) continue;
    if (!no_progress_logged_.insert(member->incarnation).second) continue;
    const double limit = watch_.Limit(member->incarnation, work);
    events_->Add(
        absl::StrFormat("no_progress: %s has work and has made no progress for %.0f s%s", member->name(),
                        SecondsWithout(*member),
                        limit > 0 ? absl::StrFormat("; it will be removed after %.0f s", limit) : ""));
  }
  return stuck;
}

void JobProgress::NoteStuck(const Member& member) {
  const bool works = member.role == v1::WORKER, awaited = watch_.IsAwaited(member.incarnation);
  const double seconds = SecondsWithout(member);
  events_->AddLoss(
      absl::StrFormat("no_progress: %s has made no progress for %.0f s (faults.%s): considered lost%s",
                      member.name(), seconds, awaited ? "hold_up_seconds" : "stuck_seconds",
                      works                    ? "; its samples are assigned to other workers"
                      : member.evaluates_since ? "; its evaluation has no score"
                                               : ""),
      member.worker());
  const double held_up =
      awaited ? watch_.SecondsHeldUp(member.incarnation, member.heard_at, clock_->Now()) : seconds;
  if (works && held_up > 0) Bar(member, held_up, awaited);
  watch_.NoteStuck(member.process());
}

ProgressWatch::Work JobProgress::WorkOf(const Member& worker) const {
  ProgressWatch::Work work;
  work.granted = worker.granted_steps;
  work.reported = worker.progress.steps();
  // The time that a worker reports counts as far as servers have answered its steps, because it lengthens the
  // limit.
  work.mean_step_seconds = std::min(MeanStepSeconds(worker), watch_.SecondsPerAnswer(worker.incarnation));
  work.process = worker.process();
  return work;
}

double JobProgress::LeavePatience() const {
  double seconds = JobStateMachine::kLeaveSeconds;
  const double slowest = job_.faults().slowest_kib_per_second();
  if (slowest > 0) seconds = std::max(seconds, kBlocksToLeave * job_.block_kib() / slowest);
  for (const Member* worker : members_.workers()) {
    const double of_steps = kStepsToLeave * MeanStepSeconds(*worker);
    if (of_steps <= seconds) continue;
    const double limit = watch_.Limit(worker->incarnation, WorkOf(*worker));
    seconds = std::max(seconds, limit > 0 ? std::min(limit, of_steps) : of_steps);
  }
  return seconds;
}

void JobProgress::Bar(const Member& worker, double seconds, bool awaited) {
  watch_.Bar(worker.origin(), seconds, worker.incarnation, members_.next_incarnation(), clock_->Now(),
             awaited);
}

void JobProgress::BarIfAwaited(const Member& worker) {
  const v1::Consistency& consistency = job_.algorithm().consistency();
  const bool waits = (NumGroups(consistency) > 0 && !consistency.has_quorum()) || StalenessBound(consistency);
  if (!waits) return;
  const double seconds = watch_.SecondsHeldUp(worker.incarnation, worker.heard_at, clock_->Now());
  if (seconds > 0) Bar(worker, seconds, /*awaited=*/true);
}

uint32_t JobProgress::LocalStepsOf(const Member& worker) const {
  const v1::PseudoGradient& contribution = job_.algorithm().contribution().pseudo_gradient();
  if (!contribution.steps_by_speed()) return 0;
  return LocalSteps(contribution.local_steps(), SpeedOf(worker),
                    HighSpeed([this](const Member& other) { return SpeedOf(other); }));
}

double JobProgress::SpeedOf(const Member& worker) const {
  const double stated = StepsPerSecond(worker.progress);
  const double seconds = watch_.SecondsPerAnswer(worker.incarnation);
  return seconds > 0 ? std::min(stated, 1 / seconds) : stated;
}

double JobProgress::HighSpeed(absl::FunctionRef<double(const Member&)> speed_of) const {
  double highest = 0, second = 0;
  for (const Member* worker : members_.workers()) {
    const double speed = speed_of(*worker);
    second = std::max(second, std::min(highest, speed));
    highest = std::max(highest, speed);
  }
  return members_.num_workers() > 2 && second > 0 ? second : highest;
}

double JobProgress::FastestStepSeconds() const {
  // Servers answer a worker only when a quorum is in, so their times do not bound its speed.
  const double speed = HighSpeed([](const Member& worker) { return StepsPerSecond(worker.progress); });
  return speed > 0 ? 1 / speed : 0;
}

void JobProgress::Fill(v1::JobStatus* status) const {
  work_.Fill(status);
  status->set_train_loss(meter_.mean_loss());
  status->set_train_accuracy(meter_.accuracy());
  if (status->phase() != v1::JobStatus::TRAINING) return;
  const double rate = meter_.samples_per_second(clock_->Now());
  const uint64_t left = status->total_samples() - std::min(status->total_samples(), status->samples());
  status->set_samples_per_second(rate);
  if (rate > 0) status->set_seconds_left(static_cast<double>(left) / rate);
}

void JobProgress::Save(v1::MasterImage* image) const {
  *image->mutable_work() = work_.Save();
  *image->mutable_times_stuck() = {watch_.times_stuck().begin(), watch_.times_stuck().end()};
}

void JobProgress::Restore(const v1::MasterImage& image) {
  work_.Restore(image.work());
  watch_.Restore({image.times_stuck().begin(), image.times_stuck().end()});
  Restart();
}

}  // namespace catchment
