// gRPC's side of a shard: frames in, frames out. What it decides is only whether a peer keeps to the
// protocol; everything else is the shard's.
#ifndef CATCHMENT_SERVER_EDGE_SHARD_SERVICE_H_
#define CATCHMENT_SERVER_EDGE_SHARD_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>

#include "common/parameter_layout.h"
#include "proto/wire.grpc.pb.h"
#include "server/edge/apply_pool.h"
#include "server/edge/calls.h"
#include "server/edge/snapshot_stream.h"
#include "server/edge/stream_table.h"
#include "server/edge/train_stream.h"
#include "server/run_claim.h"
#include "server/shard.h"

namespace catchment {

// Threads: safe; everything runs on the listener's and the apply pool's, and a stream that waits holds none.
class ShardService final : public CallService {
 public:
  // Carries out the master's command and reports (server/shard_host.h).
  using ControlHandler = std::function<v1::ShardReport(const v1::ShardCommand&)>;

  struct Options {
    ApplyPool::Options apply;
    double slowest_bytes_per_second = 0;  // Faults.slowest_kib_per_second (proto/job.proto); 0: no floor
  };

  // `shard`, `claim` and `layout` outlive the service, and the service its streams: shut the gRPC server down
  // first.
  ShardService(std::string job, const ParameterLayout& layout, Shard* shard, RunClaim* claim,
               ControlHandler control)
      : ShardService(std::move(job), layout, shard, claim, std::move(control), Options()) {}
  ShardService(std::string job, const ParameterLayout& layout, Shard* shard, RunClaim* claim,
               ControlHandler control, const Options& options);

  // To be called once a second or so: ends streams whose workers are no members any more, or too slow.
  void Sweep(double now);

  grpc::Service* grpc_service() override { return &service_; }
  void Accept(CallQueue* queue) override;

 private:
  using Async = v1::ShardService::WithRawMethod_Train<v1::ShardService::WithAsyncMethod_Snapshot<
      v1::ShardService::WithAsyncMethod_Control<v1::ShardService::Service>>>;

  void Train(TrainCall* call);
  void Snapshot(SnapshotCall* call);
  absl::Status Admit(const grpc::ServerContext& context, v1::Hello* hello) const;
  absl::Status AdmitReader(const v1::SnapshotRequest& request) const;

  Async service_;

  const std::string job_;
  const ParameterLayout& layout_;
  Shard* const shard_;
  RunClaim* const claim_;
  const ControlHandler control_;
  StreamTable streams_;
  StreamTable snapshots_;
  const TrainStream::Context context_;
  ApplyPool appliers_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_SHARD_SERVICE_H_
