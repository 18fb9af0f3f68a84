#include "server/control/control_loop.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/job_text.h"

namespace catchment {
namespace {

constexpr double kStepSeconds = 0.1;
constexpr double kShortStepSeconds = 0.01;  // while the end of the job waits for reports
// If the owner waits longer than this, its process did not run in the meantime.
constexpr double kPauseSeconds = 1;
// The time for which a job that has ended waits until its record can be written. Without it, a master that is
// started again would continue the job.
constexpr double kRecordSeconds = 30;

absl::StatusOr<std::unique_ptr<Master>> MakeMaster(ControlLoop::Options* options, const Clock* clock) {
  const RunOptions& run = options->run;
  if (run.restored) {
    return Master::Restore(run.job, options->tensors, run.num_servers, clock, run.restored->copy.master(),
                           run.first_incarnation);
  }
  v1::MasterState from = std::exchange(options->resumed, std::nullopt).value_or(v1::MasterState());
  from.set_next_incarnation(std::max(from.next_incarnation(), run.first_incarnation));
  return Master::Create(run.job, options->tensors, run.num_servers, clock, std::move(from));
}

// The reply to a call whose changes the standby will not have.
absl::Status RunHasEnded() { return absl::UnavailableError("the master's run has ended"); }

// Returns the record with which a run begins.
v1::RunRecord FirstRecord(const RunOptions& run) {
  v1::RunRecord record = run.record;
  if (!run.restored) record.clear_servers();
  record.set_job_fingerprint(JobFingerprint(run.job));
  record.set_run_id(run.run_id);
  record.set_ended(false);
  record.clear_phase();
  record.clear_reason();
  record.clear_told();
  return record;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlLoop>> ControlLoop::Create(Options options, const Clock* clock) {
  ASSIGN_OR_RETURN(std::unique_ptr<Master> master, MakeMaster(&options, clock));
  const RunOptions& run = options.run;
  if (options.kept) master->evaluation().SetKept(*options.kept);
  if (!run.restored) master->members().ExpectEvaluators(run.loss ? run.loss->evaluators : run.evaluators);
  if (run.loss) {
    const int workers = run.loss->workers > 0 ? run.loss->workers : static_cast<int>(run.job.workers());
    master->ExpectWorkers(workers, run.job.faults().connect_timeout_seconds());
  }
  return std::unique_ptr<ControlLoop>(new ControlLoop(std::move(options), std::move(master), clock));
}

ControlLoop::ControlLoop(Options options, std::unique_ptr<Master> master, const Clock* clock)
    : options_(std::move(options)),
      clock_(*clock),
      master_(std::move(master)),
      history_(FirstRecord(options_.run), options_.run.loss),
      servers_(&options_.run, options_.can_go_back, options_.own_version, master_.get(), &history_, clock),
      kept_(options_.kept) {
  if (options_.run.restored) TakeOver(*options_.run.restored);
}

void ControlLoop::TakeOver(const RunOptions::Restored& from) {
  servers_.Restore(from);
  devices_ = {from.copy.devices().begin(), from.copy.devices().end()};
  if (from.copy.has_kept()) {
    kept_ = from.copy.kept();
    master_->evaluation().SetKept(*kept_);
  }
  newest_report_ = from.evaluations.newest();
  best_report_ = from.evaluations.best();
  history_.CountRestoration();
  master_->events().Add(
      absl::StrCat("the master was lost, and has been restored at version ", options_.own_version(),
                   " from its standby, server ", servers_.StandbyOf(0), "; no update is computed again"),
      JobEvent::kRecovered);
  NoteChange();
}

// ------------------------------------------------------------------------------------------- the standby

bool ControlLoop::Commits() const {
  return options_.has_standby && master_->state_machine().begun() && !master_->state_machine().over();
}

void ControlLoop::NoteChange() {
  if (!Commits()) return;
  decided_ = master_->decisions();
  gate_.NoteChange();
}

void ControlLoop::NoteDecisions() {
  if (Commits() && decided_ != master_->decisions()) NoteChange();
}

std::optional<uint64_t> ControlLoop::TakeImage() {
  if (!Commits()) {
    gate_.Drop();
    return std::nullopt;
  }
  if (!gate_.IsDue(clock_.Now())) return std::nullopt;
  return gate_.Take();
}

std::vector<v1::StandbyPart> ControlLoop::DescribeState(bool whole) {
  std::vector<v1::StandbyPart> parts;
  if (!master_->state_machine().begun()) return parts;
  const double begin = clock_.Now();
  if (std::exchange(evaluations_changed_, false) || whole) {
    v1::EvaluationReports reports;
    *reports.mutable_newest() = newest_report_;
    *reports.mutable_best() = best_report_;
    parts.emplace_back().set_evaluations(reports.SerializeAsString());
  }
  v1::MasterCopy copy;
  *copy.mutable_master() = master_->Save();
  copy.set_run_id(run().run_id);
  copy.set_token_key(run().token_key);
  *copy.mutable_record() = record();
  copy.set_resumed_checkpoint(run().resumed_checkpoint);
  copy.set_resumed_version(run().resumed_version);
  servers_.Save(&copy);
  *copy.mutable_devices() = {devices_.begin(), devices_.end()};
  if (kept_) *copy.mutable_kept() = *kept_;
  parts.emplace_back().set_master(copy.SerializeAsString());
  gate_.OnDescribed(begin, clock_.Now());
  return parts;
}

void ControlLoop::Release(ReadyReply reply, std::vector<ReadyReply>* ready) {
  const uint64_t image = gate_.awaited();
  if (IsReleased(image)) return ready->push_back(std::move(reply));
  if (images_lost_ || (gate_.changed() && over())) {
    ready->push_back({std::move(reply.respond), RunHasEnded()});
  } else {
    replies_.push_back({image, std::move(reply)});
  }
}

std::vector<ReadyReply> ControlLoop::TakeReplies() {
  std::vector<ReadyReply> ready;
  for (; !replies_.empty(); replies_.pop_front()) {
    const bool committed = IsReleased(replies_.front().image);
    if (!committed && !images_lost_) break;
    ready.push_back(std::move(replies_.front().reply));
    if (!committed) ready.back().reply = RunHasEnded();
  }
  return ready;
}

// ------------------------------------------------------------------------------------------------- steps

v1::ShardCommand ControlLoop::WantedCommand() const {
  v1::ShardCommand command = master_->Command(/*rosters=*/false);
  if (stopped_before_start_) command.set_stop(true);
  return command;
}

bool ControlLoop::MayCommand(const v1::ShardCommand& command) const {
  return servers_.AllHere() || command.stop() || master_->state_machine().ended();
}

bool ControlLoop::HasWork() const {
  const bool held = !held_.empty() && IsReleased(held_.front().image);
  const bool replies = !replies_.empty() && (images_lost_ || IsReleased(replies_.front().image));
  if (over() || answered_ || held || replies || waiters_.NeedReview(master_->leases().conditions()))
    return true;
  const double now = clock_.Now();
  if (told_ && (history_.is_written() || now - *stop_since_ >= kRecordSeconds)) return true;
  const v1::ShardCommand command = WantedCommand();
  if (!MayCommand(command)) return false;
  if (outputs_begun_ && history_.IsDue(now)) return true;
  return (servers_.AllHere() || command.stop()) && servers_.HasDueAtOnce(command);
}

double ControlLoop::NextStep() const { return gate_.changed() ? std::min(tick_at_, gate_.next()) : tick_at_; }

bool ControlLoop::OnPause(double seconds) {
  if (seconds <= kPauseSeconds) return false;
  master_->members().ExtendDeadlines(seconds);
  return true;
}

Effects ControlLoop::Step(bool waited) {
  Effects effects;
  const double begin = clock_.Now();
  const bool tick = begin >= tick_at_ || (waited && !gate_.changed());
  // A step for an image alone does not delay the next tick.
  const bool for_image = !tick && gate_.IsDue(begin) && !HasWork();
  if (tick) servers_.Tick();
  servers_.CheckForMissing();
  answered_ = false;
  master_->Tick();
  if (master_->state_machine().phase() != v1::JobStatus::WAITING) {
    const std::string recovery = history_.TakeRecovery(run().resumed_checkpoint, run().resumed_version);
    if (!recovery.empty()) master_->events().Add(recovery, JobEvent::kRecovered);
  }
  effects.events = master_->events().TakeFresh();
  for (JobEvent& event : effects.events)
    event.wall_seconds = master_->state_machine().trained_seconds(clock_.Now());
  std::vector<ReadyReply> leases = waiters_.Review(master_->leases().conditions(), begin, RetryLease());
  effects.standby = servers_.StandbyOfMaster();
  v1::ShardCommand command = WantedCommand();
  *command.mutable_run() = RunAt(run(), servers_.server(0).address);
  const bool proceed = MayCommand(command);
  NoteDecisions();
  if (proceed) {
    std::vector<ServerCommand> due = servers_.TakeDue(command, [this] { return master_->Command(); });
    if (!due.empty()) held_.push_back({Commits() ? gate_.awaited() : 0, std::move(due)});
  }
  for (; !held_.empty() && IsReleased(held_.front().image); held_.pop_front()) {
    std::vector<ServerCommand>& next = held_.front().commands;
    std::move(next.begin(), next.end(), std::back_inserter(effects.commands));
  }
  effects.replies = TakeReplies();
  for (ReadyReply& lease : leases) Release(std::move(lease), &effects.replies);
  if (proceed) {
    effects.checkpoints = TakeCheckpoints();
    effects.measures = true;
    effects.scored = std::exchange(scored_, false);
    if (command.stop()) MaybeEnd();
    effects.record = history_.TakeDue(begin);
    if (!options_.can_go_back) effects.record.reset();
    if (OutputsAreDue()) {
      outputs_begun_ = true;
      effects.outputs = MakeFinalOutputs();
    }
  }
  if (!for_image) tick_at_ = begin + (master_->leases().AwaitsReports() ? kShortStepSeconds : kStepSeconds);
  return effects;
}

std::vector<CompleteCheckpoint> ControlLoop::TakeCheckpoints() {
  std::vector<CompleteCheckpoint> checkpoints = master_->checkpoints().TakeComplete();
  // The newest one that failed is retried.
  if (checkpoints.empty() && unrecorded_ && clock_.Now() >= record_at_)
    checkpoints.push_back(*std::exchange(unrecorded_, std::nullopt));
  return checkpoints;
}

FinalOutputs ControlLoop::MakeFinalOutputs() {
  FinalOutputs outputs;
  outputs.status = Status();
  outputs.devices.assign(devices_.begin(), devices_.end());
  outputs.servers = servers_.Addresses();
  outputs.has_weights = servers_.AllHere() && master_->state_machine().weights_are_whole();
  outputs.computed_samples = master_->members().progress().computed_samples();
  if (kept_) outputs.best_evaluation = kept_->evaluation();
  if (outputs.status.tested_at_samples() == outputs.status.samples())
    outputs.statistics = {newest_report_.statistics().begin(), newest_report_.statistics().end()};
  return outputs;
}

void ControlLoop::MaybeEnd() {
  const double now = clock_.Now();
  if (!stop_since_) stop_since_ = now;
  if (!told_) {
    if (!servers_.StopIsKnown(*stop_since_)) return;
    told_ = true;
    if (!record().told()) history_.Change()->set_told(true);
  }
  const bool recorded =
      history_.is_written() || !options_.can_go_back || now - *stop_since_ >= kRecordSeconds;
  if (!recorded) return;
  over_ = true;
  if (master_->state_machine().phase() != v1::JobStatus::FAILED) return;
  const std::string reason = master_->Status().reason();
  result_ = absl::InternalError(reason.empty() ? "the job failed" : reason);
}

Effects ControlLoop::End() {
  over_ = true;
  Effects effects;
  for (ReadyReply& lease : waiters_.TakeAll(RetryLease())) Release(std::move(lease), &effects.replies);
  for (ReadyReply& reply : TakeReplies()) effects.replies.push_back(std::move(reply));
  // These wait for an image that will not be taken. The others wait for the standby, or for the end of its
  // log.
  while (gate_.changed() && !replies_.empty() && replies_.back().image == gate_.awaited()) {
    effects.replies.push_back({std::move(replies_.back().reply.respond), RunHasEnded()});
    replies_.pop_back();
  }
  return effects;
}

int ControlLoop::MembersToTell() const {
  if (master_->state_machine().phase() != v1::JobStatus::DONE || master_->state_machine().begun()) return 0;
  const int of_job = static_cast<int>(run().job.workers()) +
                     std::max(run().evaluators, static_cast<int>(run().record.evaluators()));
  return std::max(0, of_job - registered_);
}

// ---------------------------------------------------------------------------------------- results of effects

void ControlLoop::OnAnswer(int server, const v1::ShardCommand& command,
                           const absl::StatusOr<v1::ShardReport>& answer) {
  if (servers_.OnAnswer(server, command, answer)) {
    if (absl::Status status = master_->OnShardReport(*answer); !status.ok()) LOG(ERROR) << status.message();
  }
  NoteDecisions();
  // While the job trains, only commands and leases need a step at once, and HasWork checks those.
  answered_ |= master_->state_machine().phase() != v1::JobStatus::TRAINING;
}

void ControlLoop::OnCheckpointWritten(CompleteCheckpoint checkpoint, const absl::Status& status) {
  master_->OnCheckpointRecorded(checkpoint.number, status);
  NoteDecisions();
  unrecorded_.reset();
  if (status.ok()) {
    record_pauses_.Reset();
  } else {
    record_at_ = clock_.Now() + record_pauses_.Next();
    unrecorded_ = std::move(checkpoint);
  }
}

void ControlLoop::OnOutputsWritten(const absl::Status& status) {
  result_ = status;
  history_.End(master_->state_machine().phase(), master_->Status().reason(), servers_.continues_later());
  master_->OnOutputsWritten();
}

void ControlLoop::OnStateSaved(uint64_t incarnation, uint64_t checkpoint, const absl::Status& status) {
  master_->OnStateSaved(incarnation, checkpoint, status);
  NoteChange();
}

std::vector<v1::Statistic> ControlLoop::BestStatistics(uint64_t evaluation) const {
  if (best_report_.evaluation() != evaluation) return {};
  return {best_report_.statistics().begin(), best_report_.statistics().end()};
}

void ControlLoop::OnBestKept(const v1::BestState& score, const absl::Status& status) {
  if (status.ok()) kept_ = score;
  master_->OnBestKept(score.evaluation(), status);
  NoteChange();
}

void ControlLoop::OnReplaced(const absl::Status& status) {
  result_ = status;
  over_ = true;
}

}  // namespace catchment
