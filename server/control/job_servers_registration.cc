// The part of JobServers that registers servers: it refuses those that do not fit the run, and tells others
// to restore their shard or to begin again.
#include <glog/logging.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/job_text.h"
#include "common/wire/protocol.h"
#include "server/control/job_servers.h"
#include "server/shard/run_claim.h"

namespace catchment {
namespace {

// Returns true if `address` is one of `listed`, an entry of --servers: the same, or with a port in place of
// 0.
bool IsAddressOf(const std::string& listed, const std::string& address) {
  const absl::string_view host = absl::StripSuffix(listed, ":0");
  if (host.size() == listed.size()) return address == listed;
  return absl::StartsWith(address, absl::StrCat(host, ":"));
}

// Returns true if another process has come for the shard of a server that has registered.
bool Replaces(const JobServers::Server& server, const v1::RegisterServerRequest& request) {
  return !server.address.empty() && server.instance != request.server_instance();
}

}  // namespace

bool JobServers::HasEndedWithout(const v1::RegisterServerRequest& request) {
  if (!master_.state_machine().ended() || request.index() == 0 || request.index() >= servers_.size())
    return false;
  Server& server = servers_[request.index()];
  if (server.instance == request.server_instance()) return false;
  server.gone = true;
  return master_.state_machine().phase() != v1::JobStatus::FAILED;
}

void JobServers::NoteFailure(const v1::RegisterServerRequest& request) {
  if (request.index() >= servers_.size()) return;
  std::string& failure = servers_[request.index()].failure;
  if (failure == OneLine(request.failure())) return;
  failure = OneLine(request.failure());
  master_.events().Add(absl::StrCat("server ", request.index(), " has ended: ", failure));
}

bool JobServers::MustRestore(const v1::RegisterServerRequest& request) const {
  return HasStandbys() && Replaces(servers_[request.index()], request) && request.epoch() == 0 &&
         !request.cannot_restore() && master_.state_machine().begun() && !master_.state_machine().ended();
}

bool JobServers::MustBeginAgain(const v1::RegisterServerRequest& request) const {
  const bool of_another_run = request.run().id() != 0 && request.run().id() != options_.run_id;
  // A restored shard is that of the run, whatever the run began with.
  if (request.epoch() > 0 && request.run().id() == options_.run_id) return false;
  return of_another_run || request.resumed_checkpoint() != options_.resumed_checkpoint;
}

absl::Status JobServers::CheckRun(const v1::RegisterServerRequest& request) const {
  const std::string server = absl::StrCat("server ", request.index(), " at ", request.address());
  RETURN_IF_ERROR(CheckProtocolVersion(server, request.protocol_version(), request.build(), "this master"));
  const bool can_begin_again = can_go_back_ && request.job_fingerprint() == JobFingerprint(options_.job);
  if (can_begin_again || request.run().id() == 0 || request.run().id() == options_.run_id)
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(server, " belongs to ", Describe(request.run()), ", but this master started ",
                   Describe(RunAt(options_, servers_[0].address)), ": the server exits; restart it"));
}

absl::Status JobServers::CheckPlace(const v1::RegisterServerRequest& request) const {
  const uint32_t index = request.index();
  if (request.job_fingerprint() != JobFingerprint(options_.job)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", index, " has a different job file than the master; give all servers the same --job"));
  }
  if (!options_.servers.empty() && !IsAddressOf(options_.servers[index], request.address())) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", index, " is at ", request.address(), ", and the master's --servers has ",
                     options_.servers[index], " for it; give all servers the same --servers"));
  }
  const Server& server = servers_[index];
  if (server.address.empty() || server.address == request.address()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("server ", index, " is at ", server.address,
                                                    " already; every server needs its own index"));
}

absl::Status JobServers::Check(const v1::RegisterServerRequest& request) {
  if (request.index() == 0 || request.index() >= servers_.size() ||
      request.num_servers() != servers_.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", request.index(), " of ", request.num_servers(), " does not fit a job of ",
                     servers_.size(), " servers; give all servers the same --servers"));
  }
  if (absl::Status status = CheckRun(request); !status.ok()) {
    LOG(WARNING) << status.message();
    return status;
  }
  RETURN_IF_ERROR(CheckPlace(request));
  if (loss_) return absl::UnavailableError("the job goes back to a checkpoint");
  const Server& server = servers_[request.index()];
  const bool replaces = Replaces(server, request);
  if (MustRestore(request)) return absl::OkStatus();
  const bool of_this_run = request.run().id() == options_.run_id && request.epoch() > 0;
  if (of_this_run && request.epoch() < server.epoch) {
    return absl::FailedPreconditionError(absl::StrCat("another process has taken the shard of server ",
                                                      request.index(), " over: this one ends"));
  }
  const bool restored = of_this_run && request.epoch() > server.epoch;
  if (replaces && restored) return absl::OkStatus();
  if (replaces && master_.state_machine().begun()) return OnRestarted(request.index());
  if (!of_this_run && !can_go_back_ && request.resumed_checkpoint() != options_.resumed_checkpoint) {
    return absl::FailedPreconditionError(absl::StrCat("server ", request.index(), " starts from checkpoint ",
                                                      request.resumed_checkpoint(), ", the master with ",
                                                      options_.resumed_checkpoint,
                                                      " (0: none); give all servers the "
                                                      "same --resume and --checkpoint_dir"));
  }
  return absl::OkStatus();
}

v1::RegisterServerReply JobServers::Accept(const v1::RegisterServerRequest& request) {
  v1::RegisterServerReply reply;
  reply.set_run_id(options_.run_id);
  if (MustRestore(request)) {
    const size_t standby = StandbyOf(request.index());
    reply.set_restore_from(servers_[standby].address);
    reply.set_restore_epoch(++servers_[request.index()].offered_epoch);
    master_.events().Add(absl::StrCat("server ", request.index(),
                                      " was started again, and restores its shard from server ", standby));
  } else if (MustBeginAgain(request)) {
    history_.NoteLostVersion(request.version());
    reply.set_go_back(true);
    reply.set_checkpoint(options_.resumed_checkpoint);
  } else {
    Admit(request);
    if (HasStandbys()) reply.set_keeps_epoch(KeptBy(request.index()).epoch);
  }
  return reply;
}

void JobServers::OnRestored(const v1::RegisterServerRequest& request) {
  Server& server = servers_[request.index()];
  server.epoch = request.epoch();
  history_.CountRestoration();
  master_.events().Add(
      absl::StrCat("server ", request.index(), " was lost, and has restored its shard at version ",
                   request.version(), " from its standby, server ", StandbyOf(request.index()),
                   "; no update is computed again"),
      JobEvent::kRecovered);
}

void JobServers::Admit(const v1::RegisterServerRequest& request) {
  Server& server = servers_[request.index()];
  if (server.instance == request.server_instance()) return;
  if (server.address.empty()) {
    master_.events().Add(absl::StrCat("server ", request.index(), " is at ", request.address()));
    server.address = request.address();
  } else if (request.epoch() > server.epoch) {
    OnRestored(request);
  } else {
    master_.OnServerReplaced(request.index(), server.address);
  }
  server.last_heard = clock_.Now();
  server.patience.Succeed();
  server.instance = request.server_instance();
  schedule_.Forget(static_cast<int>(request.index()));
  if (!AllHere()) return;
  v1::RunRecord* const record = history_.Change();
  record->clear_servers();
  for (const Server& one : servers_) record->add_servers(one.address);
}

}  // namespace catchment
