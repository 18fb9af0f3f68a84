#include "server/control/job_leases.h"

#include <algorithm>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/base/rounding.h"
#include "server/control/lease_ledger.h"
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

// Returns the answer that there is no lease yet.
v1::Lease Wait(double retry_seconds, size_t num_workers) {
  return Answer(v1::Lease::WAIT,
                std::max(retry_seconds, static_cast<double>(num_workers) / kMaxRetriesPerSecond));
}

bool ReportsAllDone(const Member& worker) {
  return worker.progress.lease() == worker.lease.number() &&
         worker.progress.lease_steps() == static_cast<uint64_t>(worker.lease.minibatches_size());
}

bool HasDoneAll(const Member& worker, const PushMarks::Mark& mark) {
  return ReportsAllDone(worker) || mark.answered == worker.granted_steps;
}

bool HasPushedAll(const Member& worker, const PushMarks::Mark& mark) {
  return mark.answered >= worker.granted_steps;
}

uint64_t PushesOf(const Member& worker, const Pace& pace) {
  return worker.progress.steps() / pace.steps_per_version;
}

std::vector<Rosters::Entry> EntriesOf(const std::vector<const Member*>& workers) {
  std::vector<Rosters::Entry> entries;
  for (const Member* worker : workers) entries.push_back({worker->index, worker->incarnation});
  return entries;
}

bool AreAll(const std::vector<const Member*>& workers, absl::FunctionRef<bool(const Member&)> what) {
  return std::all_of(workers.begin(), workers.end(), [what](const Member* worker) { return what(*worker); });
}

}  // namespace

JobLeases::JobLeases(const v1::Job& job, int num_shards, const v1::MasterState& from,
                     const JobStateMachine& state_machine, const JobMembers& members,
                     const JobCheckpoints& checkpoints, const ShardReports& reports, EventLog* events)
    : job_(job),
      from_(from),
      state_machine_(state_machine),
      members_(members.all()),
      progress_(members.progress()),
      checkpoints_(checkpoints),
      reports_(reports),
      events_(events),
      pace_(PaceOf(job)),
      synchronous_(pace_.synchronous),
      versions_per_plan_(CeilDivide(kStepsPerPlan, pace_.steps_per_version)),
      rosters_(synchronous_ ? from.version() : 0),
      marks_(num_shards),
      granted_(from.version()),
      repeated_samples_(from.repeated_samples()) {}

void JobLeases::Open(uint64_t train_samples) {
  total_samples_ = BudgetOf(job_, train_samples).total_samples;
  samples_per_epoch_ = static_cast<double>(SamplesPerEpoch(job_, train_samples));
  ledger_ = MakeDataLedger(job_, train_samples, from_);
  // Workers that have left may have begun training, though none was assigned samples.
  if (checkpoints_.last().number > 0) ledger_->AwaitCheckpoint(true);
}

bool JobLeases::DataIsOpen() const {
  return !assigned_ && !checkpoints_.draining() && from_.train_samples() == 0;
}

double JobLeases::done_epochs() const {
  return static_cast<double>(ledger_->done_samples()) / samples_per_epoch_;
}

void JobLeases::Join(const Member& worker) {
  if (synchronous_) return;
  rosters_.Join(worker.index, worker.incarnation, ClockForJoiner(0));
  if (worker.joined_late) rosters_.SetIdle(worker.incarnation);
}

absl::StatusOr<v1::Lease> JobLeases::LeaseFor(const v1::GetLeaseRequest& request, Member* member) {
  if (!state_machine_.open()) {
    v1::Lease finished = Answer(v1::Lease::FINISHED, 0);
    finished.set_stopped(checkpoints_.draining() && state_machine_.cut_short());
    return finished;
  }
  if (member->lease.number() == request.after() + 1) return member->lease;
  if (member->lease.number() != request.after()) {
    return absl::InvalidArgumentError(absl::StrCat(member->name(), " asks for the lease after ",
                                                   request.after(), ", but its last lease is ",
                                                   member->lease.number()));
  }
  if (state_machine_.state() != JobStateMachine::State::kTraining)
    return Wait(kRetryWaiting, members_.num_workers());
  return Next(member);
}

absl::StatusOr<v1::Lease> JobLeases::Next(Member* member) {
  const std::vector<uint64_t>& holders = members_.worker_incarnations();
  const auto wait_for = [&holders](double seconds) { return Wait(seconds, holders.size()); };
  const PushMarks::Mark mark = MarkOf(*member);
  const std::optional<uint64_t> version = ledger_->Prepare(member->incarnation, holders);
  const uint64_t reached = synchronous_ ? version.value_or(granted_) : reports_.highest_version();
  if (const uint64_t number = checkpoints_.AskedFor(member->incarnation, reached)) {
    v1::Lease wait = wait_for(kRetry);
    wait.set_save_state(number);
    return wait;
  }
  if (synchronous_ && checkpoints_.draining() && version.value_or(granted_) >= granted_)
    return wait_for(kRetry);
  assigned_ |= version.has_value();
  if (!version) {
    if (!synchronous_ && HasDoneAll(*member, mark)) rosters_.SetIdle(member->incarnation);
    v1::Lease wait = wait_for(ledger_->AllAssigned() ? kRetryAtEnd : kRetry);
    const bool last = ledger_->AllAssigned() || (checkpoints_.draining() && !synchronous_);
    wait.set_flush(last && !HasPushedAll(*member, mark));
    return wait;
  }
  if (synchronous_) {
    rosters_.Begin(*version, EntriesOf(members_.workers()), reports_.lowest_version());
  } else if (rosters_.IsIdle(member->incarnation) && !IsOnProbation(*member)) {
    rosters_.SetActive(member->incarnation, ClockForJoiner(PushesOf(*member, pace_)));
  }
  if (!MayGrant(*version, member->incarnation)) return wait_for(kRetry);
  ledger_->SetLeaseSize(member->incarnation, LeaseSize(member->progress, static_cast<int>(holders.size())));
  const Assignment assignment = ledger_->Next(member->incarnation, holders);
  member->granted_steps += assignment.minibatches.size();
  member->granted_samples += SamplesIn(assignment);
  member->lease = Granted(assignment);
  member->lease_steps.Clear();
  for (const Step& step : assignment.minibatches) AddStep(step, &member->lease_steps);
  member->lease.set_local_steps(progress_.LocalStepsOf(*member));
  if (synchronous_) {
    member->lease.set_settle(Overlaps(job_) && *version == checkpoints_.last().version);
    granted_ = std::max(granted_, *version + assignment.minibatches.size() / pace_.steps_per_version);
  }
  return member->lease;
}

bool JobLeases::MayWait(const v1::GetLeaseRequest& request) const {
  if (synchronous_ || state_machine_.state() != JobStateMachine::State::kTraining) return true;
  const Member* member = members_.Find(v1::WORKER, request.worker(), request.incarnation());
  return member != nullptr && HasDoneAll(*member, MarkOf(*member));
}

JobLeases::Conditions JobLeases::conditions() const {
  Conditions conditions;
  conditions.state = state_machine_.state();
  if (conditions.state != JobStateMachine::State::kTraining) return conditions;
  conditions.all_assigned = ledger_->AllAssigned();
  conditions.draining = checkpoints_.draining();
  conditions.states_for = checkpoints_.states_for();
  // A plan must still be acknowledged after the last samples are assigned.
  if (synchronous_ || !conditions.all_assigned) conditions.acknowledged = reports_.lowest_generation();
  return conditions;
}

bool JobLeases::AwaitsReports() const {
  return state_machine_.state() == JobStateMachine::State::kTraining && ledger_->AllAssigned() &&
         AreAll(members_.workers(), ReportsAllDone);
}

bool JobLeases::IsOnProbation(const Member& worker) const {
  return !synchronous_ && worker.joined_late && MarkOf(worker).answered == 0;
}

bool JobLeases::MayGrant(uint64_t version, uint64_t incarnation) const {
  const std::optional<uint64_t> since = rosters_.Since(version, incarnation);
  const uint64_t acknowledged = reports_.lowest_generation();
  if (!since || *since > acknowledged) return false;
  const CheckpointSchedule::Announced& checkpoint = checkpoints_.last();
  return !synchronous_ || version + versions_per_plan_ <= checkpoint.version ||
         checkpoint.generation <= acknowledged;
}

uint64_t JobLeases::ClockForJoiner(uint64_t pushes) const {
  uint64_t slowest = UINT64_MAX;
  for (const Rosters::Entry& entry : rosters_.Current()) {
    const Member* worker = members_.Find(v1::WORKER, entry.worker, entry.incarnation);
    if (worker != nullptr && !entry.idle) slowest = std::min(slowest, entry.clock + PushesOf(*worker, pace_));
  }
  return slowest == UINT64_MAX || slowest < pushes ? 0 : slowest - pushes;
}

std::vector<uint32_t> JobLeases::Release(const Member& worker) {
  if (is_open()) ledger_->SetLeaving(worker.incarnation);
  // If it was in no roster, the shards have no contributions from it.
  const bool known = rosters_.Remove(worker.incarnation);
  leaving_.push_back({worker, known ? rosters_.generation() : 0});
  return SettleLeaving();
}

std::vector<uint32_t> JobLeases::MarkDone(const std::vector<PushMarks::Change>& changes) {
  if (!is_open()) return {};
  for (const PushMarks::Change& worker : changes) ledger_->MarkDone(worker.incarnation, worker.settled);
  return SettleLeaving();
}

std::vector<uint32_t> JobLeases::SettleLeaving() {
  std::vector<uint32_t> free;
  std::erase_if(leaving_, [this, &free, heard = reports_.lowest_generation()](const Leaving& leaving) {
    const Member& worker = leaving.worker;
    const PushMarks::Mark mark = MarkOf(worker);
    if (leaving.generation > heard || mark.waiting) return false;
    free.push_back(worker.index);
    const uint64_t repeated = is_open() ? ledger_->Return(worker.incarnation, mark.begun) : 0;
    repeated_samples_ += repeated;
    if (repeated > 0) {
      events_->Add(absl::StrCat("the last contribution of ", worker.name(),
                                " reached only some blocks: ", repeated, " samples are computed again"));
    }
    return true;
  });
  return free;
}

uint64_t JobLeases::MostSamples() const {
  uint64_t steps = 0;
  const auto add = [this, &steps](const Member& worker) {
    const uint64_t settled = MarkOf(worker).settled;
    steps += worker.granted_steps - std::min(worker.granted_steps, settled);
  };
  for (const Member* worker : members_.workers()) add(*worker);
  for (const Leaving& leaving : leaving_) add(leaving.worker);
  // Samples of a lost worker may be in the center, and are assigned again.
  const uint64_t slack = repeated_samples_ + total_samples_ / 100;
  return ledger_->done_samples() + steps * LargestMinibatch(job_) + slack;
}

void JobLeases::NoteIfOverstated(const v1::ShardReport& report) {
  if (overstated_ || !is_open()) return;
  const uint64_t counted = report.samples() + report.late_samples();
  if (counted <= MostSamples()) return;
  overstated_ = true;
  events_->Add(
      absl::StrCat("server ", report.shard(), " has counted ", counted,
                   " samples, more than were assigned: a worker states too many; the schedule of the "
                   "learning rate follows the master's count from now on"));
}

ProgressWatch::Work JobLeases::WorkOf(const Member& worker) const {
  ProgressWatch::Work work = progress_.WorkOf(worker);
  // Asynchronous mode: others may have to wait for the clock of a worker that has no lease to work on, until
  // it asks for the next one.
  const bool holds_clock = !synchronous_ && !rosters_.IsIdle(worker.index, worker.incarnation);
  work.to_do = state_machine_.state() == JobStateMachine::State::kTraining &&
               (ledger_->HasWork(worker.incarnation) || holds_clock) &&
               !marks_.WaitsForOthers(worker.index, worker.incarnation);
  work.answered = MarkOf(worker).answered;
  work.states_saved = checkpoints_.SavedBefore(worker.incarnation);
  return work;
}

CheckpointSchedule::Facts JobLeases::CheckpointFacts(double now) const {
  // A job that is being stopped waits until all workers have pushed everything, except in synchronous mode,
  // where the version after all granted updates is known in advance.
  const auto has_pushed_all = [this](const Member& worker) { return HasPushedAll(worker, MarkOf(worker)); };
  return {.now = now,
          .version = reports_.highest_version(),
          .granted = granted_,
          .reach = granted_ + versions_per_plan_,
          .failing = !reports_.save_error().empty(),
          .at_rest = checkpoints_.draining() && (synchronous_ || AreAll(members_.workers(), has_pushed_all))};
}

std::map<uint64_t, uint32_t> JobLeases::Participants() const {
  std::map<uint64_t, uint32_t> workers;
  for (const Member* worker : members_.workers()) {
    // In synchronous mode, a worker that has not got its lease yet also takes part in the updates before the
    // checkpoint.
    const bool trains = synchronous_
                            ? rosters_.Since(checkpoints_.last().version - 1, worker->incarnation).has_value()
                            : worker->granted_steps > 0;
    if (trains) workers[worker->incarnation] = worker->index;
  }
  return workers;
}

void JobLeases::AwaitCheckpoint(bool awaited) {
  if (is_open()) ledger_->AwaitCheckpoint(awaited);
  if (awaited) rosters_.Renew();
}

void JobLeases::ForgetPassed() {
  // Later checkpoints have versions that no shard has passed.
  if (is_open() && !checkpoints_.holds())
    ledger_->Forget(checkpoints_.LowestNeeded(reports_.lowest_version()));
}

v1::MasterState JobLeases::StateAt(const Cut& cut) const {
  v1::MasterState state;
  if (is_open()) state = ledger_->StateAt(cut);
  state.set_repeated_samples(state.repeated_samples() + repeated_samples_);
  return state;
}

void JobLeases::Fill(bool rosters, v1::ShardCommand* command) const {
  command->set_generation(rosters_.generation());
  if (rosters) rosters_.Fill(command);
  command->set_total_samples(total_samples_);
  if (overstated_) command->set_most_samples(MostSamples());
}

void JobLeases::Fill(v1::JobStatus* status) const {
  status->set_samples(done_samples());
  if (is_open()) status->set_epochs(done_epochs());
  status->set_total_samples(total_samples_);
  status->set_repeated_samples(repeated_samples_);
}

void JobLeases::Save(v1::MasterImage* image) const {
  *image->mutable_rosters() = rosters_.Save();
  ledger_->Save(image);
  image->set_granted(granted_);
  for (const Leaving& leaving : leaving_) {
    v1::LeavingImage* const added = image->add_leaving();
    *added->mutable_worker() = leaving.worker.Save();
    added->set_generation(leaving.generation);
  }
  image->set_repeated_samples(repeated_samples_);
}

void JobLeases::Restore(const v1::MasterImage& image, double now) {
  rosters_.Restore(image.rosters());
  Open(image.train_samples());
  ledger_->Restore(image);
  assigned_ = true;  // as far as the image says
  granted_ = image.granted();
  for (const v1::LeavingImage& one : image.leaving())
    leaving_.push_back({Member::Restore(one.worker(), now), one.generation()});
  repeated_samples_ = image.repeated_samples();
}

}  // namespace catchment
