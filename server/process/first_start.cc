#include <glog/logging.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/manifest.h"
#include "server/control/check_image.h"
#include "server/edge/restore_shard.h"
#include "server/edge/standby_service.h"
#include "server/process/runs.h"

namespace catchment {
namespace {

// The time for which a master tries to reach the standby of its shard. All servers wait for the master.
constexpr double kRestoreSeconds = 3;

// Continues the run of a master that was lost, with the copy of its state and its shard at the standby.
// Returns false if there is none: the job goes back to a checkpoint, or begins.
absl::StatusOr<bool> ContinueRun(ServerConfig* config) {
  if (!HasStandbys(config->job, config->servers.size()) || config->checkpoint_dir.empty()) return false;
  ASSIGN_OR_RETURN(const std::optional<v1::RunRecord> record,
                   UnfinishedRun(config->checkpoint_dir, config->job));
  if (!record || record->servers_size() != std::ssize(config->servers)) return false;
  ASSIGN_OR_RETURN(const ParameterLayout layout, MakeLayout(*config));
  const SteadyClock clock;
  const std::string& standby = record->servers(1);
  absl::StatusOr<RestoredCopy> copy =
      RestoreShard(standby, config->client_credentials,
                   MakeStandbyHello(layout, /*shard=*/0, record->run_id(), /*epoch=*/0), config->job, layout,
                   kRestoreSeconds, clock);
  RestoredShard restored;
  RunOptions::Restored& master = restored.master.emplace();
  if (copy.ok() && (copy->master.empty() || !master.copy.ParseFromString(copy->master) ||
                    !master.evaluations.ParseFromString(copy->evaluations)))
    copy = absl::NotFoundError("it has no copy of the state of a master whose job trains");
  if (copy.ok()) {
    const absl::Status sound =
        CheckMasterCopy(master.copy, config->job, static_cast<int>(config->servers.size()), record->run_id());
    if (!sound.ok()) copy = sound;
  }
  if (!copy.ok()) {
    LOG(WARNING) << "the run of the master that was lost cannot be continued from the standby at " << standby
                 << ": " << copy.status().message();
    return false;
  }
  master.epoch = copy->epoch;
  restored.contents = std::move(copy->contents);
  restored.epoch = copy->epoch;
  restored.run = RunOf(*config, record->run_id());
  config->restored = std::move(restored);
  return true;
}

// Returns whether the server resumes from a checkpoint: with --resume=auto, if there is one.
absl::StatusOr<bool> Resumes(const ServerConfig& config) {
  if (config.flags.resume != AutoSwitch::kAuto) return config.flags.resume == AutoSwitch::kOn;
  const absl::Status found = FindLatest(config.checkpoint_dir).status();
  if (absl::IsNotFound(found)) return false;
  return found.ok() ? absl::StatusOr<bool>(true) : found;
}

}  // namespace

absl::Status FindStart(ServerConfig* config) {
  if (config->index == 0) {
    if (config->flags.resume != AutoSwitch::kOn && !config->checkpoint_dir.empty()) {
      ASSIGN_OR_RETURN(config->ended, UntoldEnd(config->checkpoint_dir, config->job));
      if (config->ended) return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const bool continues, ContinueRun(config));
    if (continues) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool resumes, Resumes(*config));
    ASSIGN_OR_RETURN(config->start, StartJob(config->checkpoint_dir, config->job, resumes));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool resumes, Resumes(*config));
  if (!resumes) return absl::OkStatus();
  ASSIGN_OR_RETURN(FoundCheckpoint found, FindLatest(config->checkpoint_dir));
  LOG(INFO) << "resuming from checkpoint " << found.manifest.number() << " in " << config->checkpoint_dir;
  config->start.checkpoint = std::move(found.manifest);
  return absl::OkStatus();
}

}  // namespace catchment
