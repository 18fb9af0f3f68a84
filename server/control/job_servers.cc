#include "server/control/job_servers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"

namespace catchment {
namespace {

// More than the epochs that a master can have offered after it was copied for the last time.
constexpr uint64_t kEpochsAhead = 1 << 16;
// The time for which servers that do not answer are sent the command to stop.
constexpr double kStopSeconds = 10;
// More than the time between a command that failed and the next one.
constexpr double kRepeatSeconds = 1;

}  // namespace

std::string DescribeEnd(const Master& master) {
  return DescribeEnd(v1::JobStatus::Phase_Name(master.state_machine().phase()), master.Status().reason());
}

v1::Run RunAt(const RunOptions& options, const std::string& address) {
  v1::Run run;
  run.set_id(options.run_id);
  run.set_job(options.job.name());
  run.set_master(address);
  run.set_token_key(options.token_key);
  return run;
}

JobServers::JobServers(const RunOptions* options, bool can_go_back, std::function<uint64_t()> own_version,
                       Master* master, JobHistory* history, const Clock* clock)
    : options_(*options),
      can_go_back_(can_go_back),
      own_version_(std::move(own_version)),
      master_(*master),
      history_(*history),
      clock_(*clock),
      begun_(clock_.Now()),
      servers_(options_.num_servers,
               Server{.patience = Patience(options_.job.faults().connect_timeout_seconds())}),
      schedule_(options_.num_servers) {}

void JobServers::Restore(const RunOptions::Restored& from) {
  for (size_t s = 0; s < std::min<size_t>(servers_.size(), from.copy.servers_size()); ++s) {
    const v1::ServerImage& image = from.copy.servers(static_cast<int>(s));
    Server& server = servers_[s];
    server.epoch = image.epoch();
    server.offered_epoch = image.offered_epoch() + kEpochsAhead;
    if (s == 0) continue;
    server.address = image.address();
    server.instance = image.instance();
    server.last_heard = clock_.Now();
  }
  servers_[0].epoch = from.epoch;
}

void JobServers::Save(v1::MasterCopy* copy) const {
  for (const Server& server : servers_) {
    v1::ServerImage* const image = copy->add_servers();
    image->set_address(server.address);
    image->set_instance(server.instance);
    image->set_epoch(server.epoch);
    image->set_offered_epoch(server.offered_epoch);
  }
}

std::vector<std::string> JobServers::Addresses() const {
  std::vector<std::string> addresses;
  for (const Server& server : servers_) addresses.push_back(server.address);
  return addresses;
}

bool JobServers::AllHere() const {
  return std::none_of(servers_.begin(), servers_.end(),
                      [](const Server& one) { return one.address.empty(); });
}

std::string JobServers::DescribeMissing() const {
  const auto here =
      std::count_if(servers_.begin(), servers_.end(), [](const Server& one) { return !one.address.empty(); });
  std::string text = absl::StrCat("waiting for servers: ", here, " of ", servers_.size(), " have registered");
  for (size_t s = 0; s < servers_.size(); ++s) {
    if (!servers_[s].address.empty() || servers_[s].failure.empty()) continue;
    absl::StrAppend(&text, "; server ", s, " has ended: ", servers_[s].failure);
  }
  return text;
}

// -------------------------------------------------------------------------------------------------- standbys

bool JobServers::HasStandbys() const { return catchment::HasStandbys(options_.job, options_.num_servers); }

void JobServers::SetStandby(size_t server, v1::ShardCommand* command) const {
  const std::string& address = servers_[StandbyOf(server)].address;
  if (address.empty()) return;
  v1::ShardCommand::Standby* const standby = command->mutable_standby();
  standby->set_address(address);
  standby->set_epoch(servers_[server].epoch);
  standby->set_keeps_epoch(KeptBy(server).epoch);
}

std::optional<v1::ShardCommand::Standby> JobServers::StandbyOfMaster() const {
  if (!HasStandbys() || !AllHere()) return std::nullopt;
  v1::ShardCommand command;
  SetStandby(0, &command);
  return command.standby();
}

// ---------------------------------------------------------------------------------------------------- losses

absl::Status JobServers::OnRestarted(size_t server) {
  if (!can_go_back_ || master_.state_machine().stop_requested()) return FailRestarted(server);
  const std::string name = absl::StrCat("server ", server);
  if (master_.state_machine().ended()) {
    servers_[server].gone = true;
    return absl::FailedPreconditionError(DescribeEnd(master_));
  }
  if (!loss_) {
    loss_ = RunLoss{.process = name,
                    .version = std::max(master_.highest_version(), own_version_()),
                    .workers = master_.members().all().num_connected_workers(),
                    .evaluators = master_.members().expected_evaluators(),
                    .next_incarnation = master_.members().next_incarnation()};
  }
  return absl::UnavailableError(absl::StrCat(name, " was restarted: the job goes back to a checkpoint"));
}

absl::Status JobServers::FailRestarted(size_t server) {
  const std::string reason =
      absl::StrCat("server ", server, " at ", servers_[server].address,
                   " was restarted during the job and has lost its shard; ", RecoveryAdvice());
  servers_[server].gone = true;
  master_.Fail(reason);
  return absl::FailedPreconditionError(reason);
}

std::string JobServers::RecoveryAdvice() const {
  const uint64_t last = std::max(master_.Status().last_checkpoint(), options_.resumed_checkpoint);
  if (last == 0) return "no checkpoint is complete yet: start all servers again from the beginning";
  return absl::StrCat("start all servers again with --resume to continue from checkpoint ", last);
}

void JobServers::CheckForMissing() {
  const double limit = options_.job.faults().connect_timeout_seconds();
  if (!options_.loss || master_.state_machine().ended() || clock_.Now() - begun_ <= limit) return;
  for (size_t s = 0; s < servers_.size(); ++s) {
    if (!servers_[s].address.empty()) continue;
    continues_later_ = true;
    const std::string where = options_.servers.empty() ? "" : absl::StrCat(" at ", options_.servers[s]);
    const std::string& why = servers_[s].failure;
    return master_.Fail(
        absl::StrCat(options_.loss->process, " was lost, and server ", s, where, " has not come back for ",
                     limit, " s", why.empty() ? "" : absl::StrCat(" (it ended: ", why, ")"),
                     "; start all servers again with --resume ", "to continue from the last checkpoint"));
  }
}

// ------------------------------------------------------------------------------------------------- commands

CommandSchedule::Wanted JobServers::WantedOf(const v1::ShardCommand& command) const {
  return {command.generation(), command.checkpoint(), command.stop(), master_.state_machine().phase()};
}

bool JobServers::HasDueAtOnce(const v1::ShardCommand& command) const {
  const CommandSchedule::Wanted wanted = WantedOf(command);
  for (size_t s = 0; s < servers_.size(); ++s) {
    if (Commandable(s) && schedule_.IsDueAtOnce(static_cast<int>(s), wanted)) return true;
  }
  return false;
}

std::vector<ServerCommand> JobServers::TakeDue(const v1::ShardCommand& command,
                                               const std::function<v1::ShardCommand()>& with_rosters) {
  std::vector<ServerCommand> due;
  std::optional<v1::ShardCommand> rosters;
  const CommandSchedule::Wanted wanted = WantedOf(command);
  for (size_t s = 0; s < servers_.size(); ++s) {
    if (!Commandable(s)) continue;
    const auto content = schedule_.Begin(static_cast<int>(s), wanted, master_.members().num_workers());
    if (!content) continue;
    servers_[s].patience.Begin(clock_.Now(), content->answer_seconds);
    ServerCommand& one = due.emplace_back(
        ServerCommand{static_cast<int>(s), servers_[s].address, command, content->answer_seconds});
    if (content->rosters && !rosters) rosters = with_rosters();
    if (content->rosters) *one.command.mutable_rosters() = rosters->rosters();
    one.command.set_without_statistics(!content->statistics);
    one.command.set_server_instance(servers_[s].instance);
    if (HasStandbys()) SetStandby(s, &one.command);
  }
  return due;
}

bool JobServers::OnAnswer(int server, const v1::ShardCommand& command,
                          const absl::StatusOr<v1::ShardReport>& answer) {
  // Another process may have registered in the meantime.
  const bool current = servers_[server].instance == command.server_instance();
  schedule_.End(server, answer.ok() && current ? &*answer : nullptr);
  if (current && answer.ok()) {
    servers_[server].stopped |= command.stop();
    servers_[server].last_heard = clock_.Now();
    servers_[server].patience.Succeed();
  } else if (current) {
    OnNoAnswer(server, answer.status(), command.stop());
  }
  return current && answer.ok();
}

void JobServers::OnNoAnswer(int server, const absl::Status& why, bool stop) {
  // A process that restores its shard from its standby registers when it has.
  const bool restores = absl::IsNotFound(why) && HasStandbys() && !stop;
  if ((absl::IsNotFound(why) || absl::IsFailedPrecondition(why)) && !restores) {
    OnRefused(server, why, stop);
    return;
  }
  Server& one = servers_[server];
  if (IsNotReady(why)) {
    one.last_heard = clock_.Now();
    one.patience.Succeed();
  }
  const bool is_over = !IsNotReady(why) && one.patience.Fail(clock_.Now());
  one.patience.Begin(clock_.Now(), kRepeatSeconds);
  if (!is_over || stop) return;
  continues_later_ |= !master_.state_machine().ended();
  master_.Fail(
      absl::StrCat("server ", server, " at ", one.address,
                   absl::IsInvalidArgument(why) ? " gave no valid answer for " : " was unreachable for ",
                   one.patience.seconds(), " s (", why.message(),
                   "); start all servers again with --resume to continue from the last checkpoint"));
}

void JobServers::OnRefused(int server, const absl::Status& why, bool stop) {
  // The process that should exit has already gone.
  servers_[server].stopped |= stop;
  if (absl::IsFailedPrecondition(why)) {
    master_.Fail(absl::StrCat("server ", server, " at ", servers_[server].address,
                              " refuses this job: ", why.message()));
  } else if (master_.state_machine().begun()) {
    OnRestarted(server).IgnoreError();
  }
}

bool JobServers::StopIsKnown(double since) const {
  const double now = clock_.Now();
  if (now - since >= kStopSeconds) return true;
  const double limit = options_.job.faults().connect_timeout_seconds();
  for (size_t s = 0; s < servers_.size(); ++s) {
    const Server& server = servers_[s];
    const bool reachable =
        s == 0 || (!server.address.empty() && !server.gone && now - server.last_heard <= limit);
    if (reachable && !server.stopped) return false;
  }
  return true;
}

}  // namespace catchment
