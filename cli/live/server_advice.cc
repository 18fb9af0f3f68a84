// Warnings about servers: shards that are behind or too large, and checkpoints that are not saved.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/live/advice_rules.h"
#include "common/base/text.h"

namespace catchment {
namespace {

void FindOverdueCheckpoint(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  const v1::Checkpointing& settings = status.settings().checkpoint();
  const double every_updates = static_cast<double>(settings.every_updates());
  const double every_seconds = settings.every_seconds();
  const double updates = static_cast<double>(status.updates());
  if (!status.writes_checkpoints() || updates == 0) return;
  const double since = updates - static_cast<double>(status.last_checkpoint());
  const double seconds = since / updates * status.wall_seconds();
  const bool by_updates = every_updates > 0 && since > kCheckpointTimes * every_updates;
  const bool by_seconds = every_seconds > 0 && seconds > kCheckpointTimes * every_seconds;
  if (!(by_updates || by_seconds) || seconds < kCheckpointSeconds) return;
  warnings->push_back(
      {.code = "checkpoint_overdue",
       .measured = by_updates ? since : seconds,
       .bound = kCheckpointTimes * (by_updates ? every_updates : every_seconds),
       .found = absl::StrCat(
           status.last_checkpoint() == 0
               ? "there is no checkpoint yet after "
               : absl::StrCat("the last checkpoint, ", status.last_checkpoint(), ", is older by "),
           Count(static_cast<int64_t>(since)), " updates (about ", Seconds(seconds), "); ",
           by_updates ? absl::StrCat("checkpoint.every_updates is ", settings.every_updates())
                      : absl::StrCat("checkpoint.every_seconds is ", settings.every_seconds())),
       .why = "If the job ends now, this training is lost.",
       .advice =
           "Check the servers' logs: a disk is full or too slow, or a server does not save. All servers "
           "need the same --checkpoint_dir, on a shared file system."});
}

}  // namespace

void FindShardsBehind(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  uint64_t highest = 0;
  for (const v1::ShardReport& shard : status.shards()) highest = std::max(highest, shard.version());
  // The average number of updates in that time.
  const double bound = status.wall_seconds() > kShardBehindSeconds
                           ? static_cast<double>(highest) / status.wall_seconds() * kShardBehindSeconds
                           : 0;
  for (const v1::ShardReport& shard : status.shards()) {
    const double behind = static_cast<double>(highest - shard.version());
    if (bound <= 0 || behind <= std::max<double>(bound, status.workers_size())) continue;
    warnings->push_back(
        {.code = "shard_behind",
         .shard = shard.shard(),
         .measured = behind,
         .bound = bound,
         .found = absl::StrCat("server ", shard.shard(), " is ", Count(static_cast<int64_t>(behind)),
                               " updates behind the first, more than ", Seconds(kShardBehindSeconds),
                               " of training"),
         .why = "It is overloaded, or the master cannot reach it. Workers need all shards for every step.",
         .advice = "Check its log and its machine's load and network. A server that cannot be reached for "
                   "faults.connect_timeout_seconds ends the job."});
  }
}

void FindLargeShards(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  if (status.servers_size() < 2) return;
  double sum = 0;
  for (const v1::ServerStatus& server : status.servers()) sum += static_cast<double>(server.parameters());
  const double even = sum / status.servers_size();
  for (int s = 0; s < status.servers_size(); ++s) {
    const double parameters = static_cast<double>(status.servers(s).parameters());
    if (parameters < kLargeShardParameters || parameters <= kShardTimes * even) continue;
    warnings->push_back(
        {.code = "shard_large",
         .shard = static_cast<uint32_t>(s),
         .measured = parameters / even,
         .bound = kShardTimes,
         .found = absl::StrCat("server ", s, " holds ", Count(static_cast<int64_t>(parameters)),
                               " parameters, ", Times(parameters / even), " times an even share"),
         .why = "Every push and pull takes as long as the largest shard's part of it.",
         .advice =
             "Lower block_kib, the unit of placement; with the optimizers LARS, LARC and LAMB, which need "
             "whole tensors, use fewer servers. `catchment validate` shows the placement."});
  }
}

void FindCheckpoints(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  for (const v1::ShardReport& shard : status.shards()) {
    if (shard.save_error().empty()) continue;
    warnings->push_back(
        {.code = "checkpoint_failed",
         .shard = shard.shard(),
         .measured = 1,
         .bound = 0,
         .found = absl::StrCat("server ", shard.shard(),
                               " could not save its part of a checkpoint: ", shard.save_error()),
         .why = "If the job ends now, it can only be resumed from an older checkpoint, or not at all.",
         .advice = "Free space, or give the server permission to write; it retries."});
  }
  FindOverdueCheckpoint(status, warnings);
}

}  // namespace catchment
