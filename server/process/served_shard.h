// The shard that a server's process serves in one run, with its services and its standby.
#ifndef CATCHMENT_SERVER_PROCESS_SERVED_SHARD_H_
#define CATCHMENT_SERVER_PROCESS_SERVED_SHARD_H_

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/job/parameter_layout.h"
#include "common/metrics/families.h"
#include "server/edge/standby_link.h"
#include "server/edge/standby_service.h"
#include "server/edge/sweeper.h"
#include "server/host/shard_host.h"
#include "server/process/server_config.h"
#include "server/process/server_edge.h"
#include "server/shard/run_claim.h"

namespace catchment {

// A shard's link to its standby, and the copy of another server's shard that this server keeps.
class ServedStandby {
 public:
  ServedStandby(const ServerConfig& config, const ParameterLayout& layout, StandbyService::Front* front)
      : layout_(layout),
        credentials_(config.client_credentials),
        store_(config.job, layout, (config.index + layout.num_shards() - 1) % layout.num_shards()),
        service_(&store_, front) {}

  // Begins to send the shard to the standby that commands name. `arena`, `threads` and `on_replaced`: as in
  // StandbyLink.
  void Start(ShardHost* host, const SharedArena* arena, StandbyLink::Threads threads,
             StandbyLink::OnReplaced on_replaced, uint64_t epoch) {
    link_ = std::make_unique<StandbyLink>(host->shard(), &layout_, &log_, arena, std::move(threads),
                                          credentials_, std::move(on_replaced));
    if (epoch > 0) link_->SetEpoch(epoch);
    host->SetOnStandby([this](const v1::ShardCommand::Standby& standby, uint64_t run_id) {
      Join(run_id, standby.keeps_epoch());
      link_->SetStandby(standby, run_id);
    });
  }
  // Keeps the copy of a shard of the run.
  void Join(uint64_t run_id, uint64_t lowest_epoch) { store_.Join(run_id, lowest_epoch); }
  // Ends the log: no callback of it runs afterwards.
  void End() { log_.End(); }
  // Ends the link. To be called before the shard is destroyed, and when no command can come.
  void Stop() {
    End();
    link_.reset();
  }

  StandbyLog* log() { return &log_; }
  // Returns the epoch of this process; 0: the master has not named it yet.
  uint64_t epoch() const { return link_ == nullptr ? 0 : link_->epoch(); }

 private:
  const ParameterLayout& layout_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  StandbyLog log_;
  StandbyStore store_;
  StandbyService service_;
  std::unique_ptr<StandbyLink> link_;
};

// The shard of one run, with its services.
class ServedShard {
 public:
  static absl::StatusOr<std::unique_ptr<ServedShard>> Create(ServerConfig* config,
                                                             const ParameterLayout& layout,
                                                             ServerEdge* edge) {
    const std::optional<v1::Manifest>& checkpoint = config->start.checkpoint;
    ASSIGN_OR_RETURN(Shard::Contents contents,
                     config->restored
                         ? std::move(config->restored->contents)
                         : MakeContents(config->job, layout, config->index, config->checkpoint_dir,
                                        checkpoint ? &*checkpoint : nullptr));
    std::unique_ptr<ServedShard> shard(new ServedShard(*config, layout, std::move(contents), edge));
    if (!config->restored) return shard;
    RETURN_IF_ERROR(shard->claim()->Claim(config->restored->run));
    return shard;
  }

  ~ServedShard() {
    if (standby_) standby_->Stop();
  }

  // Begins to send the shard to its standby, if there is one.
  void StartStandby(StandbyLink::OnReplaced on_replaced, uint64_t epoch) {
    if (!standby_) return;
    standby_->Start(
        &host_, service_.arena(), [edge = &edge_] { return edge->threads(); }, std::move(on_replaced), epoch);
  }
  // Keeps the copy of another server's shard, as the master has answered.
  void JoinAsStandby(const v1::RegisterServerReply& reply) {
    if (standby_ && reply.keeps_epoch() > 0) standby_->Join(reply.run_id(), reply.keeps_epoch());
  }
  // Releases all answers that wait for the standby.
  void EndStandby() {
    if (standby_) standby_->End();
  }

  ShardHost* host() { return &host_; }
  RunClaim* claim() { return &claim_; }
  uint64_t epoch() const { return standby_ ? standby_->epoch() : 0; }
  void AddMetrics(MetricFamilies* families) {
    AddShard(host_.shard()->Report(/*statistics=*/false), families);
    if (standby_) {
      AddGauge("catchment_standby_unacknowledged_changes",
               "Changes that the shard's standby has not acknowledged.",
               static_cast<double>(standby_->log()->unacknowledged()), families);
    }
  }

 private:
  ServedShard(const ServerConfig& config, const ParameterLayout& layout, Shard::Contents contents,
              ServerEdge* edge)
      : edge_(*edge),
        claim_(RandomId()),
        standby_(HasStandbys(config.job, config.servers.size())
                     ? std::make_unique<ServedStandby>(config, layout, edge->standby())
                     : nullptr),
        host_(config.job, layout, config.index, std::move(contents), config.checkpoint_dir,
              standby_ ? standby_->log() : nullptr),
        service_(config.job.name(), layout, host_.shard(), &claim_,
                 [this](const v1::ShardCommand& command) { return host_.Control(command, clock_.Now()); },
                 {.apply = config.apply,
                  .log = host_.log(),
                  .slowest_bytes_per_second = 1024.0 * config.job.faults().slowest_kib_per_second(),
                  .shared_memory = config.job.shared_memory() && !config.flags.no_shared_memory,
                  .front = edge->shard()}),
        sweeper_(&service_, host_.shard(), &clock_) {
    host_.SetAfterCommand([this] { service_.LookAtDeadlines(); });
  }

  ServerEdge& edge_;
  const SteadyClock clock_;
  RunClaim claim_;
  const std::unique_ptr<ServedStandby> standby_;  // null: the job has none
  ShardHost host_;
  ShardService service_;
  const Sweeper sweeper_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_PROCESS_SERVED_SHARD_H_
