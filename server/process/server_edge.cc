#include "server/process/server_edge.h"

#include <algorithm>
#include <iostream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/codec/codec.h"
#include "server/rules/rule.h"

namespace catchment {
namespace {

constexpr double kShutdownSeconds = 1;
// The grace for calls in progress when the job goes back to a checkpoint.
constexpr double kGoBackSeconds = 0.3;
// Service names in the health protocol.
constexpr char kMasterName[] = "catchment.v1.MasterService";
constexpr char kShardName[] = "catchment.v1.ShardService";
constexpr int64_t kControlMessageBytes = 4 << 20;
// gRPC's limit.
constexpr int64_t kMostMessageBytes = std::numeric_limits<int>::max();

// Returns the memory that the copy of another server's shard may take: an image while the one before is
// complete, and the vectors of workers that a copy may have. It is kept in the memory of the messages that it
// came in.
size_t CopyQuota(const v1::Job& job, const ParameterLayout& layout) {
  constexpr size_t kImages = 2;
  size_t values = 0;
  for (int s = 0; s < layout.num_shards(); ++s) values = std::max<size_t>(values, layout.shard(s).size());
  return values * sizeof(float) * (kImages * (1 + Rule::kMaxStates) + 2 * job.workers());
}

// Returns the memory for messages that arrive and leave: for each worker those on its connections, and a
// share for others. docs/limits.md ("Memory") states it.
size_t MemoryQuota(uint32_t workers, size_t payload) {
  constexpr size_t kShareOfOthers = 1 << 30, kOfConnections = 16 << 20, kPayloads = 16;
  return kShareOfOthers + workers * (kOfConnections + kPayloads * payload);
}

Listener::Options ListenerOptions(const ServerConfig& config, const ParameterLayout& layout) {
  Listener::Options options;
  options.everywhere = config.flags.listen_everywhere;
  const bool has_standbys = HasStandbys(config.job, config.servers.size());
  size_t payload = Codec::ForPush(config.job.compression()).PayloadBytes(layout.most_in_block());
  if (has_standbys) payload = std::max(payload, layout.most_in_block() * sizeof(float));
  options.max_message_bytes =
      static_cast<int>(std::min<int64_t>(kMostMessageBytes, kControlMessageBytes + payload));
  // A worker sends a push at most, and an evaluator the best weights. The image that a standby receives has
  // the master's state, whose size depends on the members.
  if (!has_standbys)
    options.read_ahead_bytes = std::min<int64_t>(options.read_ahead_bytes, 2 * layout.size() * sizeof(float));
  options.threads = config.listener_threads;
  options.memory_quota_bytes = MemoryQuota(config.job.workers(), payload);
  if (has_standbys) options.memory_quota_bytes += CopyQuota(config.job, layout);
  return options;
}

}  // namespace

absl::Status ServerEdge::Open(const ParameterLayout& layout, ServerConfig* config) {
  std::vector<CallService*> services = {&shard_};
  if (HasStandbys(config->job, config->servers.size())) services.push_back(&standby_);
  if (config->index == 0) services.push_back(&master_);
  const std::string waits = absl::StrCat("this server is making or reading its shard of ",
                                         layout.shard(config->index).size(), " parameters");
  return Open(services, waits, layout, config);
}

absl::Status ServerEdge::Open(const std::vector<CallService*>& services, const std::string& waits,
                              const ParameterLayout& layout, ServerConfig* config) {
  std::string& address = config->servers[config->index];
  Listener::Options options = ListenerOptions(*config, layout);
  options.waits = waits;
  ASSIGN_OR_RETURN(Listener listener, Listener::Open(address, config->server_credentials, services, options));
  listener_.emplace(std::move(listener));
  address = listener_->address();
  SetShardServing(config->index, false);
  if (config->index == 0) SetMasterServing(false);
  std::cout << "catchment_server " << config->index << ": listening on " << address << std::endl;
  return absl::OkStatus();
}

void ServerEdge::End(bool begins_again) {
  listener_->EndRun(begins_again ? kGoBackSeconds : kShutdownSeconds);
}

void ServerEdge::SetShardServing(int index, bool serving) {
  listener_->SetServing(kShardName, serving);
  listener_->SetServing(absl::StrCat("shard-", index), serving);
}

void ServerEdge::SetMasterServing(bool serving) { listener_->SetServing(kMasterName, serving); }

}  // namespace catchment
