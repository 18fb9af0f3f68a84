#include <glog/logging.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/checkpoint/manifest.h"
#include "common/job/job_text.h"
#include "common/program/daemon.h"
#include "common/wire/protocol.h"
#include "server/control/job_history.h"
#include "server/edge/restore_shard.h"
#include "server/process/run_end.h"
#include "server/process/runs.h"
#include "server/process/served_shard.h"
#include "server/process/server_registration.h"

namespace catchment {
namespace {

constexpr double kPollSeconds = 0.1;
// The time for which a server tries to reach the standby of its shard.
constexpr double kRestoreSeconds = 10;

v1::RegisterServerRequest MakeRegisterRequest(const ServerConfig& config, const std::string& address,
                                              uint64_t server_instance) {
  v1::RegisterServerRequest request;
  request.set_index(config.index);
  request.set_num_servers(static_cast<uint32_t>(config.servers.size()));
  request.set_address(address);
  request.set_job_fingerprint(JobFingerprint(config.job));
  request.set_resumed_checkpoint(config.start.checkpoint_number());
  request.set_server_instance(server_instance);
  request.set_cannot_restore(config.cannot_restore);
  request.set_protocol_version(kProtocolVersion);
  request.set_build(BuildVersion());
  return request;
}

// Reads the manifest of the checkpoint that the master has named.
absl::StatusOr<RunStart> StartFrom(uint64_t checkpoint, const ServerConfig& config) {
  RunStart start;
  if (checkpoint == 0) return start;
  absl::StatusOr<v1::Manifest> manifest = config.checkpoint_dir.empty()
                                              ? absl::NotFoundError("this server has no --checkpoint_dir")
                                              : ReadManifest(config.checkpoint_dir, checkpoint);
  if (!manifest.ok()) {
    return absl::Status(
        manifest.status().code(),
        absl::StrCat("the master asks this server to begin from checkpoint ", checkpoint, ": ",
                     manifest.status().message(),
                     "; give all servers the same --checkpoint_dir, on a shared file system"));
  }
  start.checkpoint = *std::move(manifest);
  return start;
}

// Returns how the job has ended, by its record in the directory for checkpoints. NotFound if there is none
// that says so, or if the job has failed.
absl::StatusOr<std::string> RecordedEnd(const ServerConfig& config) {
  if (config.checkpoint_dir.empty()) return absl::NotFoundError("this server has no --checkpoint_dir");
  ASSIGN_OR_RETURN(const std::optional<v1::RunRecord> record, EndedRun(config.checkpoint_dir, config.job));
  if (!record || record->phase() == v1::JobStatus::Phase_Name(v1::JobStatus::FAILED))
    return absl::NotFoundError("the job has not ended, or has failed");
  return DescribeEnd(record->phase(), record->reason());
}

// Waits until the run has ended. Returns how the server must begin again, if it must.
absl::StatusOr<std::optional<v1::RegisterServerReply>> AwaitEnd(ShardHost* shard_host, ServerEdge* edge,
                                                                int index, RunEnd* end) {
  while (!shard_host->WaitForStop(kPollSeconds)) {
    edge->SetShardServing(index, shard_host->training());
    MutexLock lock(&end->mu);
    if (end->ended) return std::nullopt;
    if (end->leaving && (!end->failure.ok() || end->again)) return std::nullopt;
    RETURN_IF_ERROR(end->failure);
    if (end->again) return end->again;
  }
  return std::nullopt;
}

// Reads the shard from its standby. If there is no copy, the server says so when it registers again.
void Restore(const v1::RegisterServerReply& reply, const ParameterLayout& layout, ServerConfig* config) {
  const SteadyClock clock;
  const v1::StandbyHello hello =
      MakeStandbyHello(layout, config->index, reply.run_id(), reply.restore_epoch());
  absl::StatusOr<RestoredCopy> copy = RestoreShard(reply.restore_from(), config->client_credentials, hello,
                                                   config->job, layout, kRestoreSeconds, clock);
  config->cannot_restore = !copy.ok();
  if (!copy.ok()) {
    LOG(WARNING) << "the shard cannot be restored: " << copy.status().message();
    return;
  }
  LOG(INFO) << "the shard is restored from the standby at " << reply.restore_from();
  RestoredShard& restored = config->restored.emplace();
  restored.contents = std::move(copy->contents);
  restored.epoch = copy->epoch;
  restored.run = RunOf(*config, reply.run_id());
}

// Prepares for the next run, or to continue this one, as the master has asked.
absl::Status BeginAgain(const v1::RegisterServerReply& reply, const ParameterLayout& layout,
                        ServerConfig* config) {
  config->restored.reset();
  if (!reply.restore_from().empty()) {
    Restore(reply, layout, config);
    return absl::OkStatus();
  }
  config->cannot_restore = false;
  LOG(WARNING) << "a server or the master was lost: this server begins again from "
               << (reply.checkpoint() == 0 ? "the initial weights"
                                           : absl::StrCat("checkpoint ", reply.checkpoint()));
  ASSIGN_OR_RETURN(config->start, StartFrom(reply.checkpoint(), *config));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> RunServer(const ParameterLayout& layout, ServerConfig* config, ServerEdge* edge) {
  const SteadyClock clock;
  const uint64_t epoch = config->restored ? config->restored->epoch : 0;
  ASSIGN_OR_RETURN(std::unique_ptr<ServedShard> shard, ServedShard::Create(config, layout, edge));
  ShardHost* const shard_host = shard->host();
  RunEnd end;
  const auto fail = [&end](const absl::Status& status) { end.Fail(status); };
  shard->StartStandby(fail, epoch);
  edge->Begin();
  ServedRun served(edge);
  edge->SetShardServing(config->index, false);
  const MetricsSource metrics(config->metrics,
                              [&shard](MetricFamilies* families) { shard->AddMetrics(families); });
  ServerRegistration::Callbacks callbacks;
  callbacks.version = [shard_host] { return shard_host->shard()->version(); };
  callbacks.epoch = [&shard] { return shard->epoch(); };
  callbacks.on_registered = [&shard](const v1::RegisterServerReply& reply) { shard->JoinAsStandby(reply); };
  config->end = "the job is over, as the master says";
  callbacks.on_ended = [&end, config](const std::string& how) {
    MutexLock lock(&end.mu);
    end.ended = true;
    config->end = how;
  };
  callbacks.on_failed = [&, on_ended = callbacks.on_ended](const absl::Status& status) {
    config->refused = true;
    // The master of a job that has ended does not answer.
    const absl::StatusOr<std::string> recorded = RecordedEnd(*config);
    if (absl::IsUnavailable(status) && recorded.ok()) return on_ended(*recorded);
    fail(status);
  };
  callbacks.on_begin_again = [&end](const v1::RegisterServerReply& reply) {
    MutexLock lock(&end.mu);
    end.again = reply;
  };
  ServerRegistration registration(
      config->servers[0], config->client_credentials,
      MakeRegisterRequest(*config, edge->address(), shard->claim()->server_instance()), shard->claim(),
      config->job.faults().connect_timeout_seconds(), &clock, std::move(callbacks));
  const auto leave = [&](int signal) {
    {
      MutexLock lock(&end.mu);
      end.leaving = true;
      config->end = "a signal asked this server to end";
    }
    registration.Leave(DescribeSignal(signal));
  };
  SignalThread signals(leave);
  const absl::StatusOr<std::optional<v1::RegisterServerReply>> again =
      AwaitEnd(shard_host, edge, config->index, &end);
  shard->EndStandby();
  served.End(/*begins_again=*/again.ok() && again->has_value());
  RETURN_IF_ERROR(again.status());
  RETURN_IF_ERROR(shard_host->result());
  if (!*again) return false;
  RETURN_IF_ERROR(BeginAgain(**again, layout, config));
  return true;
}

void ReportFailure(const ServerConfig& config, const absl::Status& why) {
  if (config.index == 0 || config.refused) return;
  ServerRegistration::Report(
      config.servers[0], config.client_credentials,
      MakeRegisterRequest(config, config.servers[config.index], /*server_instance=*/RandomId()), why);
}

}  // namespace catchment
