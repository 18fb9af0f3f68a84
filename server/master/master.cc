#include "server/master/master.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/master/budget.h"
#include "server/master/make_data_ledger.h"
#include "server/master/plan_ledger.h"

namespace catchment {
namespace {

// Seconds after which a worker asks again that waits for ...
constexpr double kRetry = 0.005;       // shards to hear of the roster, or for its first plan
constexpr double kRetryAtEnd = 0.02;   // others to finish their last lease
constexpr double kRetryWaiting = 0.1;  // other workers to arrive
// All workers together shall not ask more often than this.
constexpr double kMostRetriesPerSecond = 1000;
// Heartbeats of all workers together, and what a worker sends of its own accord.
constexpr double kMostHeartbeatsPerSecond = 500;
constexpr double kHeartbeatSeconds = 0.5;

constexpr double kWatchSeconds = 1;  // between looks at who makes progress

v1::Lease Answer(v1::Lease::State state, double retry_seconds) {
  v1::Lease lease;
  lease.set_state(state);
  lease.set_retry_seconds(retry_seconds);
  return lease;
}

v1::Lease Granted(const Deal& deal) {
  v1::Lease lease;
  lease.set_state(v1::Lease::GRANTED);
  lease.set_number(deal.number);
  lease.set_first_version(deal.first_version);
  lease.set_first_step(deal.first_step);
  for (const Step& step : deal.minibatches) *lease.add_minibatches() = ToMinibatch(step);
  return lease;
}

bool SaysItHasDoneAll(const Member& worker) {
  return worker.progress.lease() == worker.lease.number() &&
         worker.progress.lease_steps() == static_cast<uint64_t>(worker.lease.minibatches_size());
}

absl::Status CheckProgress(const v1::Progress& progress, const Member& member) {
  const auto refuse = [&member](absl::string_view field, const auto& value, const auto& limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(member.name(), " reports Progress.", field, " ", value, ", but it was given ", limit));
  };
  if (progress.lease() > member.lease.number()) {
    return refuse("lease", progress.lease(), absl::StrCat("lease ", member.lease.number(), " last"));
  }
  const uint64_t lease_steps = member.lease.minibatches_size();
  if (progress.lease() == member.lease.number() && progress.lease_steps() > lease_steps) {
    return refuse("lease_steps", progress.lease_steps(), absl::StrCat(lease_steps, " in that lease"));
  }
  if (progress.steps() > member.granted_steps) {
    return refuse("steps", progress.steps(), member.granted_steps);
  }
  if (progress.samples() > member.granted_samples) {
    return refuse("samples", progress.samples(), member.granted_samples);
  }
  for (const double seconds : {progress.compute_seconds(), progress.push_seconds(), progress.pull_seconds(),
                               progress.data_seconds()}) {
    if (std::isfinite(seconds) && seconds >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(member.name(), " reports ", seconds, " seconds in its Progress"));
  }
  return absl::OkStatus();
}

uint64_t SamplesIn(const Deal& deal) {
  uint64_t samples = 0;
  for (const Step& step : deal.minibatches) samples += NumSamples(step);
  return samples;
}

std::vector<TensorSpec> TensorsOf(const v1::RegisterRequest& request) {
  std::vector<TensorSpec> tensors;
  for (const v1::TensorInfo& tensor : request.tensors()) {
    tensors.push_back({tensor.name(), {tensor.shape().begin(), tensor.shape().end()}});
  }
  return tensors;
}

v1::Job WithoutModel(v1::Job job) {
  job.clear_model();
  return job;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Master>> Master::Create(v1::Job job, std::vector<TensorSpec> tensors,
                                                       int num_shards, const Clock* clock,
                                                       std::optional<v1::MasterState> resumed) {
  const v1::MasterState from = resumed.value_or(v1::MasterState());
  if (absl::Status status = CheckMasterState(from); !status.ok()) return status;
  return std::unique_ptr<Master>(new Master(std::move(job), std::move(tensors), num_shards, clock, from));
}

Master::Master(v1::Job job, std::vector<TensorSpec> tensors, int num_shards, const Clock* clock,
               const v1::MasterState& from)
    : job_(std::move(job)),
      settings_(WithoutModel(job_)),
      tensors_(std::move(tensors)),
      clock_(clock),
      pace_(PaceOf(job_)),
      synchronous_(pace_.synchronous),
      from_(from),
      membership_(job_.faults().worker_lease_seconds(), from.next_incarnation(), &events_),
      rosters_(synchronous_ ? from.version() : 0),
      course_(static_cast<int>(job_.workers()), from.wall_seconds()),
      board_(num_shards),
      schedule_(job_.checkpoint(), synchronous_, from.version()),
      granted_(from.version()),
      checkpoints_(num_shards),
      evaluations_(job_.evaluation().every_epochs(), from.next_evaluation()),
      early_stopping_(job_.evaluation(), from.best()),
      marks_(num_shards),
      watch_(job_.faults().stuck_seconds(), job_.faults().worker_lease_seconds()) {
  const v1::Schedule& schedule = job_.optimizer().schedule();
  if (schedule.decay() == v1::Schedule::PLATEAU) plateau_.emplace(schedule, from.plateau());
  if (from.train_samples() > 0) OpenLedger(from.train_samples());
}

void Master::OpenLedger(uint64_t train_samples) {
  train_samples_ = train_samples;
  total_samples_ = BudgetOf(job_, train_samples).total_samples;
  ledger_ = MakeDataLedger(job_, train_samples, from_);
}

// ------------------------------------------------------------------------------------------- membership

absl::StatusOr<v1::RegisterReply> Master::Register(const v1::RegisterRequest& request) {
  if (phase() == v1::JobStatus::FAILED) {
    return absl::FailedPreconditionError(absl::StrCat("the job has failed: ", course_.reason()));
  }
  if (absl::Status status = CheckFits(request); !status.ok()) return status;
  const Member& member = *membership_.Register(request, clock_->Now());
  if (member.role == v1::WORKER && ledger_ == nullptr) OpenLedger(request.train_samples());
  if (member.role == v1::WORKER && !synchronous_ && course_.open()) {
    rosters_.Join(member.index, member.incarnation, ClockBesideSlowest(0));
  }
  v1::RegisterReply reply;
  reply.set_worker(member.index);
  reply.set_incarnation(member.incarnation);
  reply.set_lease_seconds(membership_.lease_seconds());
  Advance();
  return reply;
}

absl::Status Master::CheckFits(const v1::RegisterRequest& request) const {
  const std::string where = absl::StrCat("(", request.host(), ":", request.pid(), ")");
  const std::string difference = DescribeDifference(tensors_, TensorsOf(request));
  if (!difference.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the worker ", where, " builds another model than the servers: ", difference,
                     "; start workers and servers of one version of Catchment"));
  }
  if (request.role() != v1::WORKER) return absl::OkStatus();
  if (request.train_samples() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the worker ", where, " has no training samples; see the job's data"));
  }
  if (train_samples_ > 0 && request.train_samples() != train_samples_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the worker ", where, " has ", request.train_samples(), " training samples, the job ",
                     train_samples_, "; give all workers, and a resumed job, the same data"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::HeartbeatReply> Master::Heartbeat(const v1::HeartbeatRequest& request) {
  absl::StatusOr<Member*> member =
      membership_.Hear(request.role(), request.worker(), request.incarnation(), clock_->Now());
  if (!member.ok()) return member.status();
  if (absl::Status status = Observe(request.progress(), *member); !status.ok()) return status;
  Advance();
  v1::HeartbeatReply reply;
  reply.set_again_in_seconds(
      std::max(kHeartbeatSeconds, membership_.num_workers() / kMostHeartbeatsPerSecond));
  if (!course_.cut_short()) return reply;
  reply.set_stop(true);
  reply.set_reason(course_.reason());
  return reply;
}

absl::Status Master::Observe(const v1::Progress& progress, Member* member) {
  if (member->role != v1::WORKER) return absl::OkStatus();
  if (absl::Status status = CheckProgress(progress, *member); !status.ok()) return status;
  const v1::Progress& before = member->progress;
  // Calls of one worker may overtake each other.
  if (progress.steps() < before.steps() || progress.samples() < before.samples()) return absl::OkStatus();
  meter_.Add(before, progress, clock_->Now());
  work_.Add(before, progress);
  member->progress = progress;
  return absl::OkStatus();
}

v1::LeaveReply Master::Leave(const v1::LeaveRequest& request) {
  Remove(request);
  v1::LeaveReply reply;
  if (phase() == v1::JobStatus::FAILED) reply.set_job_failed(course_.reason());
  return reply;
}

void Master::Remove(const v1::LeaveRequest& request) {
  absl::StatusOr<Member*> found =
      membership_.Hear(request.role(), request.worker(), request.incarnation(), clock_->Now());
  if (!found.ok()) return;
  if (absl::Status status = Observe(request.progress(), *found); !status.ok()) {
    events_.Add(std::string(status.message()));
  }
  const Member member = **found;
  const std::string reason = !request.reason().empty() ? request.reason()
                             : request.failed()        ? "no reason given"
                                                       : "it is done";
  events_.Add(absl::StrCat(member.name(), request.failed() ? " failed: " : " left: ", reason));
  membership_.Remove(member.role, member.index);
  if (member.role == v1::WORKER) {
    Release(member);
    if (request.failed() && course_.open() && membership_.num_workers() == 0) {
      Fail(absl::StrCat("no worker is left, and the last one, ", member.name(), ", failed: ", reason));
    }
  }
  Advance();
}

ProgressWatch::Work Master::WorkOf(const Member& worker) const {
  const PushMarks::Mark mark = marks_.Of(worker.index, worker.incarnation);
  ProgressWatch::Work work;
  work.to_do =
      course_.stage() == Course::Stage::kTraining && ledger_->HasWork(worker.incarnation) && !mark.waits;
  work.granted = worker.granted_steps;
  work.reported = worker.progress.steps();
  work.answered = mark.answered;
  if (work.reported > 0) {
    work.mean_step_seconds = worker.progress.compute_seconds() / static_cast<double>(work.reported);
  }
  return work;
}

void Master::WatchProgress() {
  const double now = watched_at_ = clock_->Now();
  if (ledger_ == nullptr) return;
  std::vector<Member> stuck;
  for (const Member* worker : membership_.workers()) {
    const ProgressWatch::Work work = WorkOf(*worker);
    const ProgressWatch::Verdict verdict = watch_.Observe(worker->incarnation, work, now);
    if (verdict == ProgressWatch::Verdict::kFine) noticed_.erase(worker->incarnation);
    if (verdict == ProgressWatch::Verdict::kStuck) stuck.push_back(*worker);
    if (verdict != ProgressWatch::Verdict::kNoProgress) continue;
    if (!noticed_.insert(worker->incarnation).second) continue;
    const double limit = watch_.Limit(work);
    events_.Add(absl::StrFormat("no_progress: %s has work and has made no progress for %.0f s%s",
                                worker->name(), watch_.SecondsWithout(worker->incarnation, now),
                                limit > 0 ? absl::StrFormat("; it is let go after %.0f s", limit) : ""));
  }
  for (const Member& worker : stuck) {
    events_.Add(
        absl::StrFormat("no_progress: %s has made no progress for %.0f s (faults.stuck_seconds): taken for "
                        "lost; its samples go to others",
                        worker.name(), watch_.SecondsWithout(worker.incarnation, now)));
    membership_.Remove(worker.role, worker.index);
    Release(worker);
  }
}

void Master::Release(const Member& worker) {
  watch_.Forget(worker.incarnation);
  noticed_.erase(worker.incarnation);
  if (ledger_ != nullptr) ledger_->SetLeaving(worker.incarnation);
  // Shards that had it in no roster have nothing of it.
  const bool known = rosters_.Remove(worker.incarnation);
  leaving_.push_back({worker, known ? rosters_.generation() : 0});
  SettleLeaving();
}

void Master::TakeMarks(const v1::ShardReport& report) {
  marks_.Update(report);
  if (ledger_ == nullptr) return;
  for (const v1::PushMark& mark : report.marks()) {
    ledger_->MarkDone(mark.incarnation(), marks_.Of(mark.worker(), mark.incarnation()).settled);
  }
  SettleLeaving();
}

void Master::SettleLeaving() {
  const uint64_t heard = board_.lowest_generation();
  std::erase_if(leaving_, [this, heard](const Leaving& leaving) {
    const Member& worker = leaving.worker;
    const PushMarks::Mark mark = marks_.Of(worker.index, worker.incarnation);
    if (leaving.generation > heard || mark.waiting) return false;
    membership_.FreeIndex(worker.index);
    if (ledger_ == nullptr) return true;
    const uint64_t repeated = ledger_->GiveBack(worker.incarnation, mark.begun);
    repeated_samples_ += repeated;
    if (repeated > 0) {
      events_.Add(absl::StrCat("the last contribution of ", worker.name(), " came to part of the blocks: ",
                               repeated, " samples are computed again that those have already"));
    }
    return true;
  });
}

bool Master::HasDoneAll(const Member& worker) const {
  return SaysItHasDoneAll(worker) ||
         marks_.Of(worker.index, worker.incarnation).answered == worker.granted_steps;
}

bool Master::awaits_reports() const {
  if (course_.stage() != Course::Stage::kTraining || ledger_ == nullptr || !ledger_->AllDealt()) return false;
  const std::vector<const Member*> workers = membership_.workers();
  return std::all_of(workers.begin(), workers.end(),
                     [](const Member* worker) { return SaysItHasDoneAll(*worker); });
}

void Master::DismissWorkers() {
  std::vector<Member> late;
  for (const Member* worker : membership_.workers()) late.push_back(*worker);
  for (const Member& worker : late) {
    events_.Add(absl::StrCat(worker.name(), " did not leave in time: taken for lost"));
    membership_.Remove(worker.role, worker.index);
    Release(worker);
  }
}

// ----------------------------------------------------------------------------------------------- leases

absl::StatusOr<v1::Lease> Master::GetLease(const v1::GetLeaseRequest& request) {
  absl::StatusOr<Member*> found =
      membership_.Hear(v1::WORKER, request.worker(), request.incarnation(), clock_->Now());
  if (!found.ok()) return found.status();
  Member* member = *found;
  if (absl::Status status = Observe(request.progress(), member); !status.ok()) return status;
  Advance();
  return LeaseFor(request, member);
}

absl::StatusOr<v1::Lease> Master::GetLeaseAgain(const v1::GetLeaseRequest& request) {
  constexpr double kLongAgo = 0;  // nothing is heard of it now
  absl::StatusOr<Member*> member =
      membership_.Hear(v1::WORKER, request.worker(), request.incarnation(), kLongAgo);
  if (!member.ok()) return member.status();
  return LeaseFor(request, *member);
}

bool Master::MayWaitForLease(const v1::GetLeaseRequest& request) const {
  if (synchronous_ || course_.stage() != Course::Stage::kTraining) return true;
  const Member* member = membership_.Find(v1::WORKER, request.worker(), request.incarnation());
  return member != nullptr && HasDoneAll(*member);
}

Master::LeaseConditions Master::lease_conditions() const {
  LeaseConditions conditions;
  conditions.stage = course_.stage();
  if (conditions.stage != Course::Stage::kTraining) return conditions;
  conditions.all_dealt = ledger_->AllDealt();
  // A plan is still to be acknowledged after the last samples are dealt.
  if (synchronous_ || !conditions.all_dealt) conditions.acknowledged = board_.lowest_generation();
  return conditions;
}

v1::Lease Master::Wait(double retry_seconds) const {
  const double least = membership_.num_workers() / kMostRetriesPerSecond;
  return Answer(v1::Lease::WAIT, std::max(retry_seconds, least));
}

absl::StatusOr<v1::Lease> Master::LeaseFor(const v1::GetLeaseRequest& request, Member* member) {
  if (!course_.open()) return Answer(v1::Lease::FINISHED, 0);
  if (member->lease.number() == request.after() + 1) return member->lease;
  if (member->lease.number() != request.after()) {
    return absl::InvalidArgumentError(absl::StrCat(member->name(), " asks for the lease after ",
                                                   request.after(), ", but the last it was given is ",
                                                   member->lease.number()));
  }
  if (course_.stage() != Course::Stage::kTraining) return Wait(kRetryWaiting);
  return NextLease(member);
}

absl::StatusOr<v1::Lease> Master::NextLease(Member* member) {
  const std::vector<uint64_t> holders = Holders();
  const std::optional<uint64_t> version = ledger_->Prepare(member->incarnation, holders);
  if (!version) {
    if (!synchronous_ && HasDoneAll(*member)) rosters_.SetIdle(member->incarnation);
    v1::Lease wait = Wait(ledger_->AllDealt() ? kRetryAtEnd : kRetry);
    const uint64_t answered = marks_.Of(member->index, member->incarnation).answered;
    wait.set_flush(ledger_->AllDealt() && answered < member->granted_steps);
    return wait;
  }
  if (synchronous_) {
    rosters_.Begin(*version, RosterEntries(), board_.lowest_version());
  } else if (rosters_.IsIdle(member->incarnation)) {
    rosters_.SetActive(member->incarnation, ClockBesideSlowest(PushesOf(*member)));
  }
  const bool known = Acknowledged(*version, member->incarnation) && CheckpointIsKnown(*version);
  if (!known) return Wait(kRetry);
  const Deal deal = ledger_->Next(member->incarnation, holders);
  member->granted_steps += deal.minibatches.size();
  member->granted_samples += SamplesIn(deal);
  member->lease = Granted(deal);
  if (synchronous_) {
    granted_ = std::max(granted_, *version + deal.minibatches.size() / pace_.steps_per_version);
  }
  return member->lease;
}

bool Master::CheckpointIsKnown(uint64_t version) const {
  if (!synchronous_ || version + VersionsPerPlan() <= schedule_.last().version) return true;
  return schedule_.last().generation <= board_.lowest_generation();
}

uint64_t Master::VersionsPerPlan() const {
  return (kStepsPerPlan + pace_.steps_per_version - 1) / pace_.steps_per_version;
}

bool Master::Acknowledged(uint64_t version, uint64_t incarnation) const {
  const std::optional<uint64_t> since = rosters_.Since(version, incarnation);
  return since && *since <= board_.lowest_generation();
}

uint64_t Master::PushesOf(const Member& worker) const {
  return worker.progress.steps() / pace_.steps_per_version;
}

uint64_t Master::ClockBesideSlowest(uint64_t pushes) const {
  uint64_t slowest = UINT64_MAX;
  for (const Rosters::Entry& entry : rosters_.Current()) {
    const Member* worker = membership_.Find(v1::WORKER, entry.worker, entry.incarnation);
    if (worker != nullptr && !entry.idle) slowest = std::min(slowest, entry.clock + PushesOf(*worker));
  }
  return slowest == UINT64_MAX || slowest < pushes ? 0 : slowest - pushes;
}

std::vector<uint64_t> Master::Holders() const {
  std::vector<uint64_t> holders;
  for (const Member* worker : membership_.workers()) holders.push_back(worker->incarnation);
  return holders;
}

std::vector<Rosters::Entry> Master::RosterEntries() const {
  std::vector<Rosters::Entry> entries;
  for (const Member* worker : membership_.workers()) entries.push_back({worker->index, worker->incarnation});
  return entries;
}

// ------------------------------------------------------------------------------------------- evaluation

absl::StatusOr<v1::GetEvaluationReply> Master::GetEvaluation(const v1::GetEvaluationRequest& request) {
  absl::StatusOr<Member*> member = membership_.HearEvaluator(request.incarnation(), clock_->Now());
  Advance();
  if (course_.ended()) {
    v1::GetEvaluationReply over;
    over.set_stop(true);
    return over;
  }
  if (!member.ok()) return member.status();
  // Who asks for the next has sent the last one's weights, or has given up.
  if (best_awaited_from_ == request.incarnation()) best_awaited_from_ = 0;
  return evaluations_.Current(
      {ledger_ == nullptr ? 0 : ledger_->done_samples(), course_.trained_seconds(clock_->Now())});
}

absl::StatusOr<v1::ReportEvaluationReply> Master::ReportEvaluation(const v1::EvaluationReport& report) {
  absl::StatusOr<Member*> member = membership_.HearEvaluator(report.incarnation(), clock_->Now());
  if (!member.ok()) return member.status();
  if (evaluations_.Report(report)) {
    FollowPlateau();
    WeighScore();
  }
  v1::ReportEvaluationReply reply;
  // The same when the report is repeated.
  reply.set_keep(best_wanted_ > 0 && report.evaluation() == best_wanted_);
  if (reply.keep()) best_awaited_from_ = report.incarnation();
  Advance();
  return reply;
}

void Master::WeighScore() {
  const v1::EvaluationReport& report = evaluations_.last();
  const double samples = static_cast<double>(report.samples());
  v1::BestState score;
  score.set_evaluation(report.evaluation());
  score.set_loss(report.loss_sum() / samples);
  score.set_accuracy(static_cast<double>(report.correct()) / samples);
  score.set_samples(evaluations_.last_moment().samples);
  if (early_stopping_.Observe(score) && job_.evaluation().keep_best()) best_wanted_ = score.evaluation();
  if (!early_stopping_.enough().empty()) course_.EndEarly(early_stopping_.enough());
}

absl::StatusOr<v1::BestState> Master::BestWanted(uint64_t incarnation, uint64_t evaluation) {
  absl::StatusOr<Member*> member = membership_.HearEvaluator(incarnation, clock_->Now());
  if (!member.ok()) return member.status();
  if (best_wanted_ > 0 && evaluation == best_wanted_) return early_stopping_.state();
  const std::string wanted = best_wanted_ > 0 ? absl::StrCat("those of evaluation ", best_wanted_) : "none";
  const std::string refusal =
      absl::StrCat("the weights of evaluation ", evaluation, " are refused: wanted are ", wanted);
  events_.Add(absl::StrCat((*member)->name(), ": ", refusal));
  return absl::FailedPreconditionError(refusal);
}

void Master::OnBestKept(uint64_t evaluation, const absl::Status& status) {
  if (!status.ok()) {
    events_.Add(absl::StrCat("the weights of evaluation ", evaluation, " are not kept: ", status.message(),
                             "; those of the best one before, if any, stay"));
  }
  if (evaluation == best_wanted_) {
    best_awaited_from_ = 0;
    if (status.ok()) best_wanted_ = 0;
  }
  Advance();
}

void Master::FollowPlateau() {
  const v1::EvaluationReport& report = evaluations_.last();
  if (!plateau_ || !plateau_->Observe(report.loss_sum() / static_cast<double>(report.samples()))) return;
  events_.Add(absl::StrCat("the test loss has not fallen from ", plateau_->state().best(), " for ",
                           job_.optimizer().schedule().patience() + 1, " evaluations: the learning rate is ",
                           plateau_->factor(), " of the job's from now on"));
}

// ----------------------------------------------------------------------------------------------- shards

absl::Status Master::OnShardReport(const v1::ShardReport& report) {
  if (absl::Status status = board_.Update(report); !status.ok()) {
    if (absl::IsFailedPrecondition(status)) {
      Fail(absl::StrCat(status.message(), "; start all servers again with --resume"));
    }
    return status;
  }
  TakeMarks(report);
  for (const CheckpointTracker::Whole& whole : checkpoints_.Observe(report)) TakeWhole(whole);
  // Checkpoints that are still to be announced are of versions that no shard has passed.
  if (ledger_ != nullptr) ledger_->Forget(schedule_.LowestNeeded(board_.lowest_version()));
  CheckForNonFinite(report);
  Advance();
  return absl::OkStatus();
}

void Master::OnServerReplaced(uint32_t index, const std::string& address) {
  board_.Forget(index);
  marks_.Forget(index);
  events_.Add(absl::StrCat("server ", index, " at ", address, " was started again before training began"));
}

void Master::AnnounceCheckpoint() {
  if (course_.stage() != Course::Stage::kTraining) return;
  const bool announced = schedule_.Step({.now = clock_->Now(),
                                         .earlier = checkpoints_.earlier(),
                                         .version = board_.highest_version(),
                                         .granted = granted_,
                                         .reach = granted_ + VersionsPerPlan(),
                                         .failing = !board_.save_error().empty()},
                                        rosters_.generation() + 1);
  if (announced) rosters_.Renew();
}

void Master::TakeWhole(const CheckpointTracker::Whole& whole) {
  // What came before it is forgotten where another one was announced meanwhile.
  if (!schedule_.Settle(whole.number) && whole.number != course_.final_checkpoint()) return;
  // Shards differ only where a worker was lost between two of them; its samples are pending again.
  uint64_t version = 0;
  for (const v1::SavedShard& shard : whole.shards) version = std::max(version, shard.version());
  complete_.push_back({whole.number, whole.shards, StateAt(version)});
}

void Master::OnCheckpointRecorded(uint64_t number, const absl::Status& status) {
  record_error_ = std::string(status.message());
  if (!status.ok()) return;
  checkpoints_.SetRecorded(number);
  events_.Add(absl::StrCat("checkpoint ", number, " is saved"));
  Advance();
}

std::string Master::SaveError() const {
  const std::string error = board_.save_error();
  return error.empty() ? record_error_ : error;
}

void Master::CheckForNonFinite(const v1::ShardReport& report) {
  const uint64_t limit = job_.faults().non_finite_limit();
  if (limit == 0 || course_.ended()) return;
  for (const v1::WorkerStatistics& worker : report.workers()) {
    if (worker.non_finite_in_a_row() < limit) continue;
    Fail(absl::StrCat("worker ", worker.worker(), " sent ", worker.non_finite_in_a_row(),
                      " contributions in a row with a NaN or an infinity: training has diverged; lower "
                      "optimizer.learning_rate, or raise optimizer.schedule.warmup"));
    return;
  }
}

v1::ShardCommand Master::Command(bool rosters) const {
  v1::ShardCommand command;
  command.set_generation(rosters_.generation());
  if (rosters) rosters_.Fill(&command);
  command.set_total_samples(total_samples_);
  if (plateau_) command.set_plateau_factor(plateau_->factor());
  if (course_.final_checkpoint() > 0) {
    command.set_checkpoint(course_.final_checkpoint());
  } else {
    command.set_checkpoint(schedule_.last().number);
    command.set_checkpoint_version(schedule_.last().version);
  }
  command.set_stop(Over());
  if (phase() == v1::JobStatus::FAILED) command.set_failure(course_.reason());
  command.set_training(training());
  return command;
}

std::vector<CompleteCheckpoint> Master::TakeCompleteCheckpoints() { return std::exchange(complete_, {}); }

v1::MasterState Master::StateAt(uint64_t version) const {
  v1::MasterState state;
  if (ledger_ != nullptr) state = ledger_->StateAt(version);
  state.set_next_incarnation(membership_.next_incarnation());
  state.set_wall_seconds(course_.trained_seconds(clock_->Now()));
  state.set_next_evaluation(evaluations_.next());
  if (plateau_) *state.mutable_plateau() = plateau_->state();
  *state.mutable_best() = early_stopping_.state();
  return state;
}

// ----------------------------------------------------------------------------------------------- course

void Master::Stop(const std::string& reason) {
  course_.RequestStop(reason);
  Advance();
}

void Master::Fail(const std::string& reason) {
  if (course_.ended()) return;
  course_.Fail(reason, clock_->Now());
  OnStage();
}

void Master::OnOutputsWritten() {
  if (!course_.ended()) return;
  course_.OutputsWritten();
  Advance();
}

void Master::ExtendDeadlines(double seconds) {
  membership_.ExtendDeadlines(seconds, clock_->Now());
  watch_.Extend(seconds);
}

void Master::Tick() {
  const double now = clock_->Now();
  for (const Member& member : membership_.TakeExpired(now)) {
    if (member.role == v1::WORKER) Release(member);
  }
  if (course_.overdue(now)) DismissWorkers();
  if (now - watched_at_ >= kWatchSeconds) WatchProgress();
  Advance();
}

void Master::Advance() {
  if (ledger_ != nullptr) {
    evaluations_.Observe(static_cast<double>(ledger_->done_samples()) / static_cast<double>(train_samples_));
  }
  while (course_.Step(GatherFacts(), clock_->Now())) OnStage();
  AnnounceCheckpoint();
}

Course::Facts Master::GatherFacts() const {
  Course::Facts facts;
  facts.workers = membership_.num_workers();
  facts.evaluators = membership_.num_evaluators();
  facts.budget_done = ledger_ != nullptr && ledger_->AllDone();
  facts.settled = board_.all_reported() && board_.lowest_generation() >= rosters_.generation();
  facts.highest_version = board_.highest_version();
  facts.earlier_checkpoint = checkpoints_.earlier();
  facts.used_checkpoint = schedule_.UsedNumber(board_.highest_version());
  facts.saved = checkpoints_.AllSaved(course_.final_checkpoint()) &&
                checkpoints_.recorded() >= course_.final_checkpoint();
  facts.save_error = SaveError();
  facts.evaluated = evaluations_.final_done() && !membership_.HasEvaluator(best_awaited_from_);
  facts.watched = clock_->Now() < watched_until_;
  return facts;
}

void Master::OnStage() {
  switch (course_.stage()) {
    case Course::Stage::kWaiting:
      events_.Add(course_.reason());
      break;
    case Course::Stage::kTraining:
      meter_.Restart(clock_->Now());
      events_.Add(absl::StrCat("training with ", membership_.num_workers(), " workers"));
      break;
    case Course::Stage::kLeaving:
      events_.Add(course_.cut_short() ? course_.reason() : "the budget is spent");
      break;
    case Course::Stage::kEvaluating:
      evaluations_.DemandFinal();
      break;
    case Course::Stage::kEnded:
      events_.Add(absl::StrCat("the job is over: ", v1::JobStatus::Phase_Name(phase()),
                               course_.reason().empty() ? "" : ", ", course_.reason()));
      break;
    case Course::Stage::kSaving:
      rosters_.Renew();
      break;
    case Course::Stage::kSettling:
    case Course::Stage::kOver:
      break;
  }
}

}  // namespace catchment
