// The part of the master that tracks progress: what workers report as done, what the shards have settled, and
// which members make no progress.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/job/algorithm_facts.h"
#include "server/control/master.h"
#include "server/control/stated_facts.h"

namespace catchment {
namespace {

constexpr double kWatchSeconds = 1;  // between two checks of the workers' progress
// A worker that must leave finishes a step, which may take longer than usual, and then pushes. Servers count
// the bytes of a push only when a block is complete.
constexpr double kStepsToLeave = 3;
constexpr double kBlocksToLeave = 2;

bool ReportsAllDone(const Member& worker) {
  return worker.progress.lease() == worker.lease.number() &&
         worker.progress.lease_steps() == static_cast<uint64_t>(worker.lease.minibatches_size());
}

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

absl::Status Master::Observe(const v1::Progress& progress, Member* member) {
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

bool Master::HoldsClock(const Member& worker) const {
  return !synchronous_ && !rosters_.IsIdle(worker.index, worker.incarnation);
}

ProgressWatch::Work Master::WorkOf(const Member& worker) const {
  ProgressWatch::Work work;
  work.to_do = state_machine_.state() == JobStateMachine::State::kTraining &&
               (ledger_->HasWork(worker.incarnation) || HoldsClock(worker)) &&
               !marks_.WaitsForOthers(worker.index, worker.incarnation);
  work.granted = worker.granted_steps;
  work.reported = worker.progress.steps();
  work.answered = marks_.Of(worker.index, worker.incarnation).answered;
  // The time that a worker reports counts as far as servers have answered its steps, because it lengthens the
  // limit.
  work.mean_step_seconds = std::min(MeanStepSeconds(worker), watch_.SecondsPerAnswer(worker.incarnation));
  if (states_.Awaits(worker.incarnation, states_.number())) work.states_saved = states_.num_saved();
  work.process = absl::StrCat(worker.host, ":", worker.pid);
  return work;
}

void Master::WatchProgress() {
  if (clock_->Now() - watched_at_ < kWatchSeconds) return;
  watched_at_ = clock_->Now();
  if (ledger_ != nullptr) WatchWorkers();
  WatchEvaluators();
}

void Master::WatchWorkers() {
  const double now = clock_->Now();
  std::vector<Member> stuck;
  for (const Member* worker : membership_.workers()) {
    const ProgressWatch::Work work = WorkOf(*worker);
    const ProgressWatch::Verdict verdict = watch_.Observe(worker->incarnation, work, now);
    if (verdict == ProgressWatch::Verdict::kFine) no_progress_logged_.erase(worker->incarnation);
    if (verdict == ProgressWatch::Verdict::kStuck) stuck.push_back(*worker);
    if (verdict != ProgressWatch::Verdict::kNoProgress) continue;
    if (!no_progress_logged_.insert(worker->incarnation).second) continue;
    const double limit = watch_.Limit(work);
    events_.Add(
        absl::StrFormat("no_progress: %s has work and has made no progress for %.0f s%s", worker->name(),
                        watch_.SecondsWithout(worker->incarnation, now),
                        limit > 0 ? absl::StrFormat("; it will be removed after %.0f s", limit) : ""));
  }
  for (const Member& worker : stuck) {
    events_.Add(
        absl::StrFormat("no_progress: %s has made no progress for %.0f s (faults.stuck_seconds): considered "
                        "lost; its samples are assigned to other workers",
                        worker.name(), watch_.SecondsWithout(worker.incarnation, now)));
    Bar(worker, watch_.SecondsWithout(worker.incarnation, now));
    watch_.NoteStuck(WorkOf(worker).process);
    membership_.Remove(worker.role, worker.index);
    Release(worker);
  }
}

void Master::RemoveIfOverstated(const v1::PushMark& mark, uint32_t server) {
  const Member* const found = membership_.Find(v1::WORKER, mark.worker(), mark.incarnation());
  if (found == nullptr) return;
  const uint64_t stated = std::max(mark.answered_steps(), mark.begun_steps());
  if (stated <= found->granted_steps) return;
  const Member worker = *found;
  AddOfMember(absl::StrCat(worker.name(), " stated ", stated, " steps to server ", server,
                           ", but it was assigned ", worker.granted_steps,
                           ": removed; its samples are assigned to others"));
  Bar(worker, membership_.heartbeat_timeout_seconds());
  membership_.Remove(worker.role, worker.index);
  Release(worker);
}

uint64_t Master::MostSamples() const {
  uint64_t steps = 0;
  const auto add = [this, &steps](const Member& worker) {
    const uint64_t settled = marks_.Of(worker.index, worker.incarnation).settled;
    steps += worker.granted_steps - std::min(worker.granted_steps, settled);
  };
  for (const Member* worker : membership_.workers()) add(*worker);
  for (const Leaving& leaving : leaving_) add(leaving.worker);
  // Samples of a lost worker may be in the center, and are assigned again.
  const uint64_t slack = repeated_samples_ + total_samples_ / 100;
  return ledger_->done_samples() + steps * LargestMinibatch(job_) + slack;
}

void Master::NoteIfOverstated(const v1::ShardReport& report) {
  if (overstated_ || ledger_ == nullptr) return;
  const uint64_t counted = report.samples() + report.late_samples();
  if (counted <= MostSamples()) return;
  overstated_ = true;
  events_.Add(absl::StrCat("server ", report.shard(), " has counted ", counted,
                           " samples, more than were assigned: a worker states too many; the schedule of the "
                           "learning rate follows the master's count from now on"));
}

void Master::Bar(const Member& worker, double seconds, bool vanished) {
  watch_.Bar(worker.origin(), seconds, worker.incarnation, membership_.next_incarnation(), clock_->Now(),
             vanished);
}

void Master::BarIfAwaited(const Member& worker) {
  const v1::Consistency& consistency = job_.algorithm().consistency();
  const bool waits = (NumGroups(consistency) > 0 && !consistency.has_quorum()) || StalenessBound(consistency);
  if (!waits || !state_machine_.begun() || (!synchronous_ && IsOnProbation(worker))) return;
  const double seconds = watch_.SecondsVanished(worker.incarnation, worker.heard_at, clock_->Now());
  if (seconds > 0) Bar(worker, seconds, /*vanished=*/true);
}

double Master::LeavePatience() const {
  double seconds = JobStateMachine::kLeaveSeconds;
  if (state_machine_.state() != JobStateMachine::State::kLeaving) return seconds;
  const double slowest = job_.faults().slowest_kib_per_second();
  if (slowest > 0) seconds = std::max(seconds, kBlocksToLeave * job_.block_kib() / slowest);
  for (const Member* worker : membership_.workers()) {
    const double of_steps = kStepsToLeave * MeanStepSeconds(*worker);
    if (of_steps <= seconds) continue;
    const double limit = watch_.Limit(WorkOf(*worker));
    seconds = std::max(seconds, limit > 0 ? std::min(limit, of_steps) : of_steps);
  }
  return seconds;
}

void Master::Release(const Member& worker) {
  watch_.Forget(worker.incarnation);
  states_.Remove(worker.incarnation);
  MaybeComplete();
  no_progress_logged_.erase(worker.incarnation);
  if (ledger_ != nullptr) ledger_->SetLeaving(worker.incarnation);
  // If it was in no roster, the shards have no contributions from it.
  const bool known = rosters_.Remove(worker.incarnation);
  leaving_.push_back({worker, known ? rosters_.generation() : 0});
  SettleLeaving();
}

void Master::ApplyMarks(const v1::ShardReport& report) {
  const std::vector<PushMarks::Change> changes = marks_.Update(report);
  for (const v1::PushMark& mark : report.marks()) RemoveIfOverstated(mark, report.shard());
  if (ledger_ == nullptr) return;
  for (const PushMarks::Change& worker : changes) ledger_->MarkDone(worker.incarnation, worker.settled);
  SettleLeaving();
}

void Master::SettleLeaving() {
  const uint64_t heard = shard_reports_.lowest_generation();
  std::erase_if(leaving_, [this, heard](const Leaving& leaving) {
    const Member& worker = leaving.worker;
    const PushMarks::Mark mark = marks_.Of(worker.index, worker.incarnation);
    if (leaving.generation > heard || mark.waiting) return false;
    membership_.FreeIndex(worker.index);
    if (ledger_ == nullptr) return true;
    const uint64_t repeated = ledger_->Return(worker.incarnation, mark.begun);
    repeated_samples_ += repeated;
    if (repeated > 0) {
      events_.Add(absl::StrCat("the last contribution of ", worker.name(),
                               " reached only some blocks: ", repeated, " samples are computed again"));
    }
    return true;
  });
}

bool Master::HasDoneAll(const Member& worker) const {
  return ReportsAllDone(worker) ||
         marks_.Of(worker.index, worker.incarnation).answered == worker.granted_steps;
}

bool Master::HasPushedAll(const Member& worker) const {
  return marks_.Of(worker.index, worker.incarnation).answered >= worker.granted_steps;
}

bool Master::awaits_reports() const {
  if (state_machine_.state() != JobStateMachine::State::kTraining || ledger_ == nullptr ||
      !ledger_->AllAssigned())
    return false;
  const std::vector<const Member*> workers = membership_.workers();
  return std::all_of(workers.begin(), workers.end(),
                     [](const Member* worker) { return ReportsAllDone(*worker); });
}

}  // namespace catchment
