// The part of the host that sends commands to servers and answers calls that wait for a lease.
#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/master/master_host.h"

namespace catchment {
namespace {

CommandSchedule::Wanted WantedOf(const v1::ShardCommand& command, v1::JobStatus::Phase phase) {
  return {command.generation(), command.checkpoint(), command.stop(), phase};
}

}  // namespace

// ---------------------------------------------------------------------------------------------- commands

v1::ShardCommand MasterHost::NextCommand() const {
  v1::ShardCommand command = master_->Command(/*rosters=*/false);
  *command.mutable_run() = RunAt(peers_[0].address);
  if (stopped_before_start_) command.set_stop(true);
  return command;
}

bool MasterHost::Commandable(size_t server) const {
  return (server == 0 || peers_[server].stub != nullptr) && stopped_.count(static_cast<int>(server)) == 0;
}

bool MasterHost::HasWork() const {
  const bool deferred = !deferred_.empty() && !changed_since_image_;
  if (ending_ || over_ || answered_ || HasCommitted() || ImageIsDue() || deferred ||
      waiters_.NeedReview(master_->lease_conditions()))
    return true;
  const v1::ShardCommand command = master_->Command(/*rosters=*/false);
  if (!AllServersHere() && !command.stop() && !stopped_before_start_) return false;
  CommandSchedule::Wanted wanted = WantedOf(command, master_->phase());
  wanted.stop |= stopped_before_start_;
  for (size_t s = 0; s < peers_.size(); ++s) {
    if (Commandable(s) && schedule_.IsDueAtOnce(static_cast<int>(s), wanted)) return true;
  }
  return false;
}

std::vector<MasterHost::Command> MasterHost::TakeDueCommands(const v1::ShardCommand& command) {
  std::vector<Command> due;
  std::optional<v1::ShardCommand> with_rosters;
  const CommandSchedule::Wanted wanted = WantedOf(command, master_->phase());
  for (size_t s = 0; s < peers_.size(); ++s) {
    if (!Commandable(s)) continue;
    const auto content = schedule_.Begin(static_cast<int>(s), wanted, master_->num_workers());
    if (!content) continue;
    Command& one = due.emplace_back(
        Command{static_cast<int>(s), peers_[s].stub.get(), command, content->answer_seconds});
    if (content->rosters && !with_rosters) with_rosters = master_->Command();
    if (content->rosters) *one.command.mutable_rosters() = with_rosters->rosters();
    one.command.set_without_statistics(!content->statistics);
    one.command.set_server_instance(peers_[s].instance);
    if (HasStandbys()) SetStandby(s, &one.command);
  }
  return due;
}

void MasterHost::SetStandby(size_t server, v1::ShardCommand* command) const {
  const std::string& address = peers_[StandbyOf(server)].address;
  if (address.empty()) return;
  v1::ShardCommand::Standby* const standby = command->mutable_standby();
  standby->set_address(address);
  standby->set_epoch(peers_[server].epoch);
  standby->set_keeps_epoch(KeptBy(server).epoch);
}

void MasterHost::Send(std::vector<Command> commands) {
  for (Command& one : commands) {
    if (one.stub == nullptr) continue;
    commander_->Send(
        one.stub, std::move(one.command), one.answer_seconds,
        [this, shard = one.shard](const v1::ShardCommand& command, absl::StatusOr<v1::ShardReport> answer) {
          OnAnswer(shard, command, std::move(answer));
        });
  }
  // The local shard executes its command after those of the others have been sent.
  for (const Command& one : commands) {
    if (one.stub == nullptr) CommandLocal(one);
  }
}

void MasterHost::CommandLocal(const Command& one) {
  v1::ShardReport report = local_.Control(one.command, clock_.Now());
  StandbyLog* const log = local_.log();
  if (log == nullptr || one.command.stop()) return OnAnswer(one.shard, one.command, std::move(report));
  log->Flush();
  // As with other servers, the report waits for the standby.
  const auto wait =
      log->Await(log->last(), [this, shard = one.shard, command = one.command, report](bool acknowledged) {
        if (acknowledged) OnAnswer(shard, command, report);
      });
  if (wait == StandbyLog::Wait::kAcknowledged) OnAnswer(one.shard, one.command, std::move(report));
}

void MasterHost::OnAnswer(int shard, const v1::ShardCommand& command,
                          absl::StatusOr<v1::ShardReport> answer) {
  MutexLock lock(&mu_);
  // Another process may have registered in the meantime.
  const bool current = peers_[shard].instance == command.server_instance();
  schedule_.End(shard, answer.ok() && current ? &*answer : nullptr);
  if (current && answer.ok()) {
    if (command.stop()) stopped_.insert(shard);
    OnReport(shard, *answer);
  } else if (current) {
    OnNoAnswer(shard, answer.status(), command.stop());
  }
  // While the job trains, only commands and leases need the thread at once, and HasWork checks those.
  answered_ |= master_->phase() != v1::JobStatus::TRAINING;
  if (HasWork()) changed_.Notify();
}

void MasterHost::OnReport(int shard, const v1::ShardReport& report) {
  peers_[shard].last_heard = clock_.Now();
  if (absl::Status status = master_->OnShardReport(report); !status.ok()) LOG(ERROR) << status.message();
  NoteDecisions();
}

void MasterHost::OnNoAnswer(int shard, const absl::Status& why, bool stop) {
  // A process that restores its shard from its standby registers when it has.
  const bool restores = absl::IsNotFound(why) && HasStandbys() && !stop;
  if ((absl::IsNotFound(why) || absl::IsFailedPrecondition(why)) && !restores) {
    OnRefused(shard, why, stop);
    return;
  }
  const Peer& peer = peers_[shard];
  const double limit = options_.job.faults().connect_timeout_seconds();
  if (clock_.Now() - peer.last_heard <= limit || stop) return;
  continues_later_ |= !master_->ended();
  master_->Fail(absl::StrCat(
      "server ", shard, " at ", peer.address,
      absl::IsInvalidArgument(why) ? " gave no valid answer for " : " was unreachable for ", limit, " s (",
      why.message(), "); start all servers again with --resume to continue from the last checkpoint"));
}

void MasterHost::OnRefused(int shard, const absl::Status& why, bool stop) {
  // The process that should exit has already gone.
  if (stop) stopped_.insert(shard);
  if (absl::IsFailedPrecondition(why)) {
    master_->Fail(
        absl::StrCat("server ", shard, " at ", peers_[shard].address, " refuses this job: ", why.message()));
  } else if (master_->has_begun()) {
    OnRestarted(shard).IgnoreError();
  }
}

// ------------------------------------------------------------------------------------------------ leases

absl::StatusOr<v1::Lease> MasterHost::GetLease(const v1::GetLeaseRequest& request) {
  MutexLock lock(&mu_);
  return GetLeaseLocked(request);
}

absl::StatusOr<v1::Lease> MasterHost::GetLeaseLocked(const v1::GetLeaseRequest& request) {
  absl::StatusOr<v1::Lease> lease = master_->GetLease(request);
  WakeIfNeeded();
  return Noted(std::move(lease));
}

absl::StatusOr<v1::Lease> MasterHost::Noted(absl::StatusOr<v1::Lease> lease) {
  const bool waits = lease.ok() && lease->state() == v1::Lease::WAIT && lease->save_state() == 0;
  if (lease.ok() && !waits) NoteChange();
  NoteDecisions();
  if (lease.ok()) lease->set_total_samples(master_->total_samples());
  return lease;
}

void MasterHost::AwaitLease(const v1::GetLeaseRequest& request, LeaseWaiters::Respond respond) {
  std::optional<LeaseWaiters::Answer> answer;
  {
    MutexLock lock(&mu_);
    const double seconds = std::min(request.wait_seconds(), master_->LongestLeaseWait());
    absl::StatusOr<v1::Lease> lease = GetLeaseLocked(request);
    const bool waits = seconds > 0 && lease.ok() && lease->state() == v1::Lease::WAIT && !lease->flush() &&
                       lease->save_state() == 0 && !ending_ && !over_ && master_->MayWaitForLease(request);
    if (waits) {
      answer = waiters_.Add({request, clock_.Now() + seconds, *std::move(lease), std::move(respond)},
                            master_->lease_conditions());
      WakeIfNeeded();
    } else {
      answer = LeaseWaiters::Answer{std::move(respond), std::move(lease)};
    }
  }
  if (answer) answer->respond(std::move(answer->lease));
}

LeaseWaiters::Ask MasterHost::AskAgain() {
  return [this](const v1::GetLeaseRequest& request) { return Noted(master_->GetLeaseAgain(request)); };
}

void MasterHost::Deliver(std::vector<LeaseWaiters::Answer> answers) {
  for (LeaseWaiters::Answer& answer : answers) answer.respond(std::move(answer.lease));
}

void MasterHost::AnswerWaiters() {
  std::vector<LeaseWaiters::Answer> answers;
  {
    MutexLock lock(&mu_);
    answers = waiters_.TakeAll(AskAgain());
  }
  Deliver(std::move(answers));
}

void MasterHost::WakeIfNeeded() {
  if (HasWork()) changed_.Notify();
}

}  // namespace catchment
