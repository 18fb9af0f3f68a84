// The gRPC service of a shard. It only checks that peers follow the protocol; everything else is done by the
// shard.
#ifndef CATCHMENT_SERVER_EDGE_SHARD_SERVICE_H_
#define CATCHMENT_SERVER_EDGE_SHARD_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/job/parameter_layout.h"
#include "proto/wire.grpc.pb.h"
#include "server/edge/apply_pool.h"
#include "server/edge/calls.h"
#include "server/edge/deadline_timer.h"
#include "server/edge/snapshot_stream.h"
#include "server/edge/stream_table.h"
#include "server/edge/train_stream.h"
#include "server/shard/run_claim.h"
#include "server/shard/shard.h"

namespace catchment {

// Threads: safe; it runs on those of the listener and of the apply pool, and a waiting stream holds none.
class ShardService final : public CallService {
  using Async = v1::ShardService::WithRawMethod_Train<v1::ShardService::WithAsyncMethod_Snapshot<
      v1::ShardService::WithAsyncMethod_Control<v1::ShardService::Service>>>;

 public:
  // The gRPC service, with the object that has its calls in the present run. It outlives the listener.
  class Front final : public CallService {
   public:
    grpc::Service* grpc_service() override { return &service_; }
    void Accept(CallQueue* queue) override;

   private:
    friend class ShardService;
    Async service_;
    ShardService* target_ = nullptr;
  };

  // Executes the master's command and returns the report (server/host/shard_host.h).
  using ControlHandler = std::function<v1::ShardReport(const v1::ShardCommand&)>;

  struct Options {
    ApplyPool::Options apply;
    StandbyLog* log = nullptr;            // outlives the service; null: the shard has no standby
    double slowest_bytes_per_second = 0;  // Faults.slowest_kib_per_second (proto/job.proto); 0: no limit
    bool shared_memory = true;            // with workers on this machine
    Front* front = nullptr;               // of a process that serves several runs; null: a front of its own
  };

  // `shard`, `claim` and `layout` must outlive the service, and the service its streams: shut the gRPC server
  // down first.
  ShardService(std::string job, const ParameterLayout& layout, Shard* shard, RunClaim* claim,
               ControlHandler control)
      : ShardService(std::move(job), layout, shard, claim, std::move(control), Options()) {}
  ShardService(std::string job, const ParameterLayout& layout, Shard* shard, RunClaim* claim,
               ControlHandler control, const Options& options);

  // Returns the memory of the shard's buffers; null: it is not shared.
  const SharedArena* arena() const { return arena_.get(); }

  // Looks up when the shard's next update is due. Call after every command to the shard.
  void LookAtDeadlines() {
    if (timer_ != nullptr) timer_->Look();
  }
  // Ends streams whose workers have left the job or are too slow. Call about once a second.
  void Sweep(double now);

  grpc::Service* grpc_service() override { return front_->grpc_service(); }
  void Accept(CallQueue* queue) override { front_->Accept(queue); }

 private:
  void Control(const v1::ShardCommand& command, std::function<void(absl::StatusOr<v1::ShardReport>)> respond);
  // Returns the permission for calls of a method.
  static Permission For(absl::string_view method);
  void Train(TrainCall* call);
  void Snapshot(SnapshotCall* call);
  absl::Status Admit(const grpc::ServerContext& context, v1::Hello* hello) const;
  absl::Status AdmitReader(const v1::SnapshotRequest& request) const;

  Front own_front_;
  Front* const front_;
  const std::string job_;
  const ParameterLayout& layout_;
  Shard* const shard_;
  RunClaim* const claim_;
  const ControlHandler control_;
  std::shared_ptr<SharedArena> arena_;  // of the shard's buffers; null: no memory is shared
  StreamTable streams_;
  StreamTable snapshots_;
  TrainStream::Context context_;
  const std::unique_ptr<DeadlineTimer> timer_;  // null: no update is due at a time
  ApplyPool appliers_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_SHARD_SERVICE_H_
