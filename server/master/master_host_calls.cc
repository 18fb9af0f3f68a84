// The calls of the master's service.
#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/job/job_text.h"
#include "common/open_files.h"
#include "common/random_id.h"
#include "common/text.h"
#include "common/version.h"
#include "common/wire/protocol.h"
#include "common/wire/token.h"
#include "server/master/master_host.h"
#include "server/shard/run_claim.h"

namespace catchment {
namespace {

// Returns true if `address` is one of `listed`, an entry of --servers: the same, or with a port in place of 0.
bool IsAddressOf(const std::string& listed, const std::string& address) {
  const absl::string_view host = absl::StripSuffix(listed, ":0");
  if (host.size() == listed.size()) return address == listed;
  return absl::StartsWith(address, absl::StrCat(host, ":"));
}

}  // namespace

absl::StatusOr<v1::GetJobReply> MasterHost::GetJob() {
  MutexLock lock(&mu_);
  v1::GetJobReply reply;
  *reply.mutable_job() = options_.job;
  reply.set_run_id(options_.run_id);
  reply.set_protocol_version(kProtocolVersion);
  reply.set_build(BuildVersion());
  for (size_t s = 0; s < peers_.size(); ++s) {
    if (peers_[s].address.empty()) {
      if (master_->phase() == v1::JobStatus::FAILED) return absl::FailedPreconditionError(DescribeEnd());
      return absl::UnavailableError(
          absl::StrCat("server ", s, " of ", peers_.size(), " has not registered yet"));
    }
    reply.add_servers(peers_[s].address);
  }
  return reply;
}

absl::StatusOr<v1::RegisterServerReply> MasterHost::RegisterServer(const v1::RegisterServerRequest& request) {
  MutexLock lock(&mu_);
  v1::RegisterServerReply ended;
  ended.set_run_id(options_.run_id);
  if (!request.failure().empty()) {
    NoteFailure(request);
    return ended;
  }
  if (HasEndedWithout(request)) {
    ended.set_ended(DescribeEnd());
    return ended;
  }
  if (absl::Status status = CheckServer(request); !status.ok()) return status;
  if (request.leaving()) StopLocked(absl::StrCat("server ", request.index(), " is shutting down"));
  v1::RegisterServerReply reply;
  reply.set_run_id(options_.run_id);
  if (MustRestore(request)) {
    Peer& peer = peers_[request.index()];
    reply.set_restore_from(peers_[StandbyOf(request.index())].address);
    reply.set_restore_epoch(++peer.offered_epoch);
    LOG(INFO) << "server " << request.index() << " was started again, and restores its shard from server "
              << StandbyOf(request.index());
  } else if (MustBeginAgain(request)) {
    NoteLostVersion(request.version());
    reply.set_go_back(true);
    reply.set_checkpoint(options_.resumed_checkpoint);
  } else {
    Admit(request);
    if (HasStandbys()) reply.set_keeps_epoch(KeptBy(request.index()).epoch);
  }
  NoteChange();
  return reply;
}

bool MasterHost::HasEndedWithout(const v1::RegisterServerRequest& request) {
  if (!master_->ended() || request.index() == 0 || request.index() >= peers_.size()) return false;
  Peer& peer = peers_[request.index()];
  if (peer.instance == request.server_instance()) return false;
  peer.gone = true;
  return master_->phase() != v1::JobStatus::FAILED;
}

std::string MasterHost::DescribeEnd() const {
  return catchment::DescribeEnd(v1::JobStatus::Phase_Name(master_->phase()), master_->Status().reason());
}

void MasterHost::NoteFailure(const v1::RegisterServerRequest& request) {
  if (request.index() >= peers_.size()) return;
  std::string& failure = peers_[request.index()].failure;
  if (failure == OneLine(request.failure())) return;
  failure = OneLine(request.failure());
  master_->AddEvent(absl::StrCat("server ", request.index(), " has ended: ", failure));
}

bool MasterHost::MustRestore(const v1::RegisterServerRequest& request) const {
  const Peer& peer = peers_[request.index()];
  const bool replaces = !peer.address.empty() && peer.instance != request.server_instance();
  return HasStandbys() && replaces && request.epoch() == 0 && !request.cannot_restore() &&
         master_->has_begun() && !master_->ended();
}

void MasterHost::OnRestored(const v1::RegisterServerRequest& request) {
  Peer& peer = peers_[request.index()];
  peer.epoch = request.epoch();
  record_.set_recoveries(record_.recoveries() + 1);
  record_changed_ = true;
  master_->AddEvent(absl::StrCat(
      "server ", request.index(), " was lost, and has restored its shard at version ", request.version(),
      " from its standby, server ", StandbyOf(request.index()), "; no update is computed again"));
}

bool MasterHost::MustBeginAgain(const v1::RegisterServerRequest& request) const {
  const bool of_another_run = request.run().id() != 0 && request.run().id() != options_.run_id;
  // A restored shard is that of the run, whatever the run began with.
  if (request.epoch() > 0 && request.run().id() == options_.run_id) return false;
  return of_another_run || request.resumed_checkpoint() != options_.resumed_checkpoint;
}

absl::Status MasterHost::CheckRun(const v1::RegisterServerRequest& request) const {
  const std::string server = absl::StrCat("server ", request.index(), " at ", request.address());
  if (absl::Status status =
          CheckProtocolVersion(server, request.protocol_version(), request.build(), "this master");
      !status.ok()) {
    return status;
  }
  const bool can_begin_again = CanGoBack() && request.job_fingerprint() == JobFingerprint(options_.job);
  if (can_begin_again || request.run().id() == 0 || request.run().id() == options_.run_id)
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(server, " belongs to ", Describe(request.run()), ", but this master started ",
                   Describe(RunAt(peers_[0].address)), ": the server exits; restart it"));
}

absl::Status MasterHost::CheckServer(const v1::RegisterServerRequest& request) {
  if (request.index() == 0 || request.index() >= peers_.size() || request.num_servers() != peers_.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", request.index(), " of ", request.num_servers(), " does not fit a job of ",
                     peers_.size(), " servers; give all servers the same --servers"));
  }
  if (absl::Status status = CheckRun(request); !status.ok()) {
    LOG(WARNING) << status.message();
    return status;
  }
  if (request.job_fingerprint() != JobFingerprint(options_.job)) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", request.index(),
                     " has a different job file than the master; give all servers the same --job"));
  }
  if (!options_.servers.empty() && !IsAddressOf(options_.servers[request.index()], request.address())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", request.index(), " is at ", request.address(), ", and the master's --servers has ",
        options_.servers[request.index()], " for it; give all servers the same --servers"));
  }
  const Peer& peer = peers_[request.index()];
  if (!peer.address.empty() && peer.address != request.address()) {
    return absl::FailedPreconditionError(absl::StrCat("server ", request.index(), " is at ", peer.address,
                                                      " already; every server needs its own index"));
  }
  if (loss_) return absl::UnavailableError("the job goes back to a checkpoint");
  const bool replaces = !peer.address.empty() && peer.instance != request.server_instance();
  if (MustRestore(request)) return absl::OkStatus();
  const bool of_this_run = request.run().id() == options_.run_id && request.epoch() > 0;
  if (of_this_run && request.epoch() < peer.epoch) {
    return absl::FailedPreconditionError(absl::StrCat("another process has taken the shard of server ",
                                                      request.index(), " over: this one ends"));
  }
  const bool restored = of_this_run && request.epoch() > peer.epoch;
  if (replaces && restored) return absl::OkStatus();
  if (replaces && master_->has_begun()) return OnRestarted(request.index());
  if (!of_this_run && !CanGoBack() && request.resumed_checkpoint() != options_.resumed_checkpoint) {
    return absl::FailedPreconditionError(absl::StrCat("server ", request.index(), " starts from checkpoint ",
                                                      request.resumed_checkpoint(), ", the master with ",
                                                      options_.resumed_checkpoint,
                                                      " (0: none); give all servers the same --resume "
                                                      "and --checkpoint_dir"));
  }
  return absl::OkStatus();
}

void MasterHost::Admit(const v1::RegisterServerRequest& request) {
  Peer& peer = peers_[request.index()];
  if (peer.instance == request.server_instance()) return;
  if (peer.address.empty()) {
    LOG(INFO) << "server " << request.index() << " is at " << request.address();
    peer.stub = v1::ShardService::NewStub(ConnectForControl(request.address(), options_.credentials));
    peer.address = request.address();
  } else if (request.epoch() > peer.epoch) {
    OnRestored(request);
  } else {
    master_->OnServerReplaced(request.index(), peer.address);
  }
  peer.last_heard = clock_.Now();
  peer.instance = request.server_instance();
  schedule_.Forget(static_cast<int>(request.index()));
  if (AllServersHere()) {
    record_.clear_servers();
    for (const Peer& one : peers_) record_.add_servers(one.address);
    record_changed_ = true;
  }
  WakeIfNeeded();
}

absl::Status MasterHost::OnRestarted(size_t server) {
  if (!CanGoBack() || master_->stop_requested()) return FailRestarted(server);
  const std::string name = absl::StrCat("server ", server);
  if (master_->ended()) {
    peers_[server].gone = true;
    return absl::FailedPreconditionError(DescribeEnd());
  }
  if (!loss_ && !over_) {
    loss_ = RunLoss{.process = name,
                    .version = std::max(master_->highest_version(), local_.shard()->version()),
                    .workers = master_->num_connected_workers(),
                    .evaluators = master_->expected_evaluators(),
                    .next_incarnation = master_->next_incarnation()};
    over_ = true;
    changed_.Notify();
  }
  return absl::UnavailableError(absl::StrCat(name, " was restarted: the job goes back to a checkpoint"));
}

absl::Status MasterHost::FailRestarted(size_t server) {
  const std::string reason =
      absl::StrCat("server ", server, " at ", peers_[server].address,
                   " was restarted during the job and has lost its shard; ", RecoveryAdvice());
  peers_[server].gone = true;
  master_->Fail(reason);
  NoteDecisions();
  WakeIfNeeded();
  return absl::FailedPreconditionError(reason);
}

std::string MasterHost::RecoveryAdvice() const {
  const uint64_t last = std::max(master_->Status().last_checkpoint(), options_.resumed_checkpoint);
  if (last == 0) return "no checkpoint is complete yet: start all servers again from the beginning";
  return absl::StrCat("start all servers again with --resume to continue from checkpoint ", last);
}

absl::StatusOr<v1::RegisterReply> MasterHost::Register(const v1::RegisterRequest& request,
                                                       const std::string& address) {
  if (absl::Status status = CheckWorker(request); !status.ok()) return status;
  MutexLock lock(&mu_);
  if (request.role() == v1::WORKER) {
    const int64_t workers = master_->num_workers() + 1;
    if (absl::Status status = CheckOpenFiles(workers, options_.num_servers, /*master=*/true); !status.ok())
      return absl::ResourceExhaustedError(status.message());
  }
  absl::StatusOr<v1::RegisterReply> reply = master_->Register(request, address);
  if (reply.ok()) {
    NoteLostVersion(request.version());
    reply->set_token(RegistrationToken(options_.token_key, reply->incarnation()));
    if (request.role() == v1::WORKER && devices_.size() < kMostDevices) devices_.insert(request.device());
  }
  NoteEvaluators();
  NoteChange();
  WakeIfNeeded();
  return reply;
}

void MasterHost::NoteEvaluators() {
  const auto evaluators = static_cast<uint32_t>(master_->expected_evaluators());
  record_changed_ |= record_.evaluators() != evaluators;
  record_.set_evaluators(evaluators);
}

absl::Status MasterHost::CheckWorker(const v1::RegisterRequest& request) const {
  const std::string worker = absl::StrCat("the worker (", request.host(), ":", request.pid(), ")");
  if (absl::Status status =
          CheckProtocolVersion(worker, request.protocol_version(), request.build(), "this master");
      !status.ok()) {
    return status;
  }
  if (request.run_id() == options_.run_id) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(worker, " has the job of run ", FormatId(request.run_id()),
                                         ", but this master started run ", FormatId(options_.run_id),
                                         ": request the job again"));
}

absl::StatusOr<v1::HeartbeatReply> MasterHost::Heartbeat(const v1::HeartbeatRequest& request) {
  MutexLock lock(&mu_);
  absl::StatusOr<v1::HeartbeatReply> reply = master_->Heartbeat(request);
  NoteDecisions();
  WakeIfNeeded();
  return reply;
}

v1::LeaveReply MasterHost::Leave(const v1::LeaveRequest& request) {
  MutexLock lock(&mu_);
  v1::LeaveReply reply = master_->Leave(request);
  NoteEvaluators();
  NoteChange();
  WakeIfNeeded();
  return reply;
}

absl::StatusOr<v1::GetEvaluationReply> MasterHost::GetEvaluation(const v1::GetEvaluationRequest& request) {
  MutexLock lock(&mu_);
  absl::StatusOr<v1::GetEvaluationReply> reply = master_->GetEvaluation(request);
  if (reply.ok() && reply->evaluation() > 0) NoteChange();
  NoteDecisions();
  return reply;
}

absl::StatusOr<v1::ReportEvaluationReply> MasterHost::ReportEvaluation(const v1::EvaluationReport& report) {
  MutexLock lock(&mu_);
  absl::StatusOr<v1::ReportEvaluationReply> reply = master_->ReportEvaluation(report);
  WakeIfNeeded();
  if (!reply.ok()) return reply;
  if (!outputs_->enabled()) reply->set_keep(false);
  // A late report, and one that is repeated, has no effect.
  if (report.evaluation() == master_->newest_evaluation() &&
      report.evaluation() != newest_report_.evaluation()) {
    newest_report_ = report;
  }
  scored_ = true;
  if (reply->keep()) best_report_ = report;
  evaluations_changed_ = true;
  NoteChange();
  return reply;
}

v1::JobStatus MasterHost::GetStatus(const v1::GetStatusRequest& request) {
  {
    MutexLock lock(&mu_);
    master_->Watch(request.again_in_seconds());
  }
  return Status();
}

v1::JobStatus MasterHost::Status() {
  MutexLock lock(&mu_);
  v1::JobStatus status = master_->Status();
  const auto here =
      std::count_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.address.empty(); });
  if (status.phase() == v1::JobStatus::WAITING && !AllServersHere()) {
    status.set_reason(absl::StrCat("waiting for servers: ", here, " of ", peers_.size(), " have registered"));
    for (size_t s = 0; s < peers_.size(); ++s) {
      if (!peers_[s].address.empty() || peers_[s].failure.empty()) continue;
      status.mutable_reason()->append(absl::StrCat("; server ", s, " has ended: ", peers_[s].failure));
    }
  }
  if (recovers_from_ && status.phase() == v1::JobStatus::WAITING) {
    const std::string place = options_.resumed_checkpoint == 0
                                  ? "the initial weights"
                                  : absl::StrCat("checkpoint ", options_.resumed_checkpoint);
    status.set_reason(
        absl::StrCat(recovers_from_->process, " was lost; going back to ", place, ": ", status.reason()));
  }
  status.set_recoveries(record_.recoveries());
  status.set_updates_computed_again(record_.updates_computed_again());
  status.set_insecure(options_.insecure);
  status.set_writes_checkpoints(!options_.checkpoint_dir.empty());
  for (size_t s = 0; s < peers_.size(); ++s) {
    v1::ServerStatus* server = status.add_servers();
    server->set_address(peers_[s].address);
    server->set_parameters(layout_.shard(static_cast<int>(s)).size());
  }
  return status;
}

void MasterHost::Stop(const std::string& reason, bool now) {
  MutexLock lock(&mu_);
  StopLocked(reason, now);
}

// Before all servers have registered no worker can have: there is nothing to save and no worker to wait for.
void MasterHost::StopLocked(const std::string& reason, bool now) {
  stopped_before_start_ |= !AllServersHere();
  if (now) {
    master_->StopNow(reason);
  } else {
    master_->Stop(reason);
  }
  NoteDecisions();
  WakeIfNeeded();
}

absl::Status MasterHost::Wait() {
  MutexLock lock(&mu_);
  changed_.Wait(&mu_, [this] { return over_; });
  return result_;
}

bool MasterHost::WaitFor(double seconds) {
  MutexLock lock(&mu_);
  return changed_.WaitFor(&mu_, seconds, [this] { return over_; });
}

bool MasterHost::training() {
  MutexLock lock(&mu_);
  return master_->training();
}

}  // namespace catchment
