// The part of the master that grants leases.
#include <algorithm>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/base/rounding.h"
#include "common/base/status_macros.h"
#include "server/control/lease_ledger.h"
#include "server/control/master.h"
#include "server/control/plan_ledger.h"

namespace catchment {
namespace {

// The intervals at which a waiting worker asks again, in seconds.
constexpr double kRetry = 0.005;       // until the shards know the roster, or until its first plan
constexpr double kRetryAtEnd = 0.02;   // until others have finished their last leases
constexpr double kRetryWaiting = 0.1;  // until other workers have registered
// The limit for all workers together.
constexpr double kMaxRetriesPerSecond = 1000;

v1::Lease Answer(v1::Lease::State state, double retry_seconds) {
  v1::Lease lease;
  lease.set_state(state);
  lease.set_retry_seconds(retry_seconds);
  return lease;
}

v1::Lease Granted(const Assignment& assignment) {
  v1::Lease lease;
  lease.set_state(v1::Lease::GRANTED);
  lease.set_number(assignment.number);
  lease.set_first_version(assignment.first_version);
  lease.set_first_step(assignment.first_step);
  lease.set_last(assignment.last);
  for (const Step& step : assignment.minibatches) *lease.add_minibatches() = ToMinibatch(step);
  return lease;
}

uint64_t SamplesIn(const Assignment& assignment) {
  uint64_t samples = 0;
  for (const Step& step : assignment.minibatches) samples += NumSamples(step);
  return samples;
}

}  // namespace

absl::StatusOr<v1::Lease> Master::GetLease(const v1::GetLeaseRequest& request) {
  ASSIGN_OR_RETURN(auto member,
                   membership_.Renew(v1::WORKER, request.worker(), request.incarnation(), clock_->Now()));
  RETURN_IF_ERROR(Observe(request.progress(), member));
  Advance();
  return LeaseFor(request, member);
}

absl::StatusOr<v1::Lease> Master::GetLeaseAgain(const v1::GetLeaseRequest& request) {
  constexpr double kLongAgo = 0;  // does not renew its heartbeat
  ASSIGN_OR_RETURN(auto member,
                   membership_.Renew(v1::WORKER, request.worker(), request.incarnation(), kLongAgo));
  return LeaseFor(request, member);
}

bool Master::MayWaitForLease(const v1::GetLeaseRequest& request) const {
  if (synchronous_ || state_machine_.state() != JobStateMachine::State::kTraining) return true;
  const Member* member = membership_.Find(v1::WORKER, request.worker(), request.incarnation());
  return member != nullptr && HasDoneAll(*member);
}

double Master::LongestLeaseWait() const {
  return std::min(Spread(kLeaseWaitSeconds), membership_.heartbeat_timeout_seconds() / 3);
}

Master::LeaseConditions Master::lease_conditions() const {
  LeaseConditions conditions;
  conditions.state = state_machine_.state();
  if (conditions.state != JobStateMachine::State::kTraining) return conditions;
  conditions.all_assigned = ledger_->AllAssigned();
  conditions.draining = draining_;
  conditions.states_for = states_.number();
  // A plan must still be acknowledged after the last samples are assigned.
  if (synchronous_ || !conditions.all_assigned) conditions.acknowledged = shard_reports_.lowest_generation();
  return conditions;
}

v1::Lease Master::Wait(double retry_seconds) const {
  const double least = membership_.num_workers() / kMaxRetriesPerSecond;
  return Answer(v1::Lease::WAIT, std::max(retry_seconds, least));
}

absl::StatusOr<v1::Lease> Master::LeaseFor(const v1::GetLeaseRequest& request, Member* member) {
  if (!state_machine_.open()) {
    v1::Lease finished = Answer(v1::Lease::FINISHED, 0);
    finished.set_stopped(draining_ && state_machine_.cut_short());
    return finished;
  }
  if (member->lease.number() == request.after() + 1) return member->lease;
  if (member->lease.number() != request.after()) {
    return absl::InvalidArgumentError(absl::StrCat(member->name(), " asks for the lease after ",
                                                   request.after(), ", but its last lease is ",
                                                   member->lease.number()));
  }
  if (state_machine_.state() != JobStateMachine::State::kTraining) return Wait(kRetryWaiting);
  return NextLease(member);
}

uint32_t Master::LocalStepsOf(const Member& member) const {
  const v1::PseudoGradient& contribution = job_.algorithm().contribution().pseudo_gradient();
  if (!contribution.steps_by_speed()) return 0;
  return LocalSteps(contribution.local_steps(), SpeedOf(member),
                    HighSpeed([this](const Member& worker) { return SpeedOf(worker); }));
}

double Master::SpeedOf(const Member& worker) const {
  const double stated = StepsPerSecond(worker.progress);
  const double seconds = watch_.SecondsPerAnswer(worker.incarnation);
  return seconds > 0 ? std::min(stated, 1 / seconds) : stated;
}

double Master::HighSpeed(absl::FunctionRef<double(const Member&)> speed_of) const {
  double highest = 0, second = 0;
  for (const Member* worker : membership_.workers()) {
    const double speed = speed_of(*worker);
    second = std::max(second, std::min(highest, speed));
    highest = std::max(highest, speed);
  }
  return membership_.num_workers() > 2 && second > 0 ? second : highest;
}

double Master::FastestStepSeconds() const {
  // Servers answer a worker only when a quorum is in, so their times do not bound its speed.
  const double speed = HighSpeed([](const Member& worker) { return StepsPerSecond(worker.progress); });
  return speed > 0 ? 1 / speed : 0;
}

absl::StatusOr<v1::Lease> Master::NextLease(Member* member) {
  const std::vector<uint64_t>& holders = membership_.worker_incarnations();
  const std::optional<uint64_t> version = ledger_->Prepare(member->incarnation, holders);
  const uint64_t reached = synchronous_ ? version.value_or(granted_) : shard_reports_.highest_version();
  if (const uint64_t number = states_.AskedFor(member->incarnation, reached)) {
    v1::Lease wait = Wait(kRetry);
    wait.set_save_state(number);
    return wait;
  }
  if (synchronous_ && draining_ && version.value_or(granted_) >= granted_) return Wait(kRetry);
  assigned_ |= version.has_value();
  if (!version) {
    if (!synchronous_ && HasDoneAll(*member)) rosters_.SetIdle(member->incarnation);
    v1::Lease wait = Wait(ledger_->AllAssigned() ? kRetryAtEnd : kRetry);
    const bool last = ledger_->AllAssigned() || (draining_ && !synchronous_);
    wait.set_flush(last && !HasPushedAll(*member));
    return wait;
  }
  if (synchronous_) {
    rosters_.Begin(*version, RosterEntries(), shard_reports_.lowest_version());
  } else if (rosters_.IsIdle(member->incarnation) && !IsOnProbation(*member)) {
    rosters_.SetActive(member->incarnation, ClockForJoiner(PushesOf(*member)));
  }
  const bool known = Acknowledged(*version, member->incarnation) && CheckpointIsKnown(*version);
  if (!known) return Wait(kRetry);
  ledger_->SetLeaseSize(member->incarnation, LeaseSize(member->progress, static_cast<int>(holders.size())));
  const Assignment assignment = ledger_->Next(member->incarnation, holders);
  member->granted_steps += assignment.minibatches.size();
  member->granted_samples += SamplesIn(assignment);
  member->lease = Granted(assignment);
  member->lease_steps.Clear();
  for (const Step& step : assignment.minibatches) AddStep(step, &member->lease_steps);
  member->lease.set_local_steps(LocalStepsOf(*member));
  if (synchronous_) {
    member->lease.set_settle(Overlaps(job_) && *version == schedule_.last().version);
    granted_ = std::max(granted_, *version + assignment.minibatches.size() / pace_.steps_per_version);
  }
  return member->lease;
}

bool Master::IsOnProbation(const Member& worker) const {
  return worker.joined_late && marks_.Of(worker.index, worker.incarnation).answered == 0;
}

bool Master::CheckpointIsKnown(uint64_t version) const {
  if (!synchronous_ || version + VersionsPerPlan() <= schedule_.last().version) return true;
  return schedule_.last().generation <= shard_reports_.lowest_generation();
}

uint64_t Master::VersionsPerPlan() const { return CeilDivide(kStepsPerPlan, pace_.steps_per_version); }

bool Master::Acknowledged(uint64_t version, uint64_t incarnation) const {
  const std::optional<uint64_t> since = rosters_.Since(version, incarnation);
  return since && *since <= shard_reports_.lowest_generation();
}

uint64_t Master::PushesOf(const Member& worker) const {
  return worker.progress.steps() / pace_.steps_per_version;
}

uint64_t Master::ClockForJoiner(uint64_t pushes) const {
  uint64_t slowest = UINT64_MAX;
  for (const Rosters::Entry& entry : rosters_.Current()) {
    const Member* worker = membership_.Find(v1::WORKER, entry.worker, entry.incarnation);
    if (worker != nullptr && !entry.idle) slowest = std::min(slowest, entry.clock + PushesOf(*worker));
  }
  return slowest == UINT64_MAX || slowest < pushes ? 0 : slowest - pushes;
}

std::vector<Rosters::Entry> Master::RosterEntries() const {
  std::vector<Rosters::Entry> entries;
  for (const Member* worker : membership_.workers()) entries.push_back({worker->index, worker->incarnation});
  return entries;
}

}  // namespace catchment
