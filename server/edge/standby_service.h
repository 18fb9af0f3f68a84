// The gRPC service of a standby: it keeps the copy of another server's shard (proto/standby.proto).
#ifndef CATCHMENT_SERVER_EDGE_STANDBY_SERVICE_H_
#define CATCHMENT_SERVER_EDGE_STANDBY_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "common/base/mutex.h"
#include "common/job/parameter_layout.h"
#include "proto/standby.grpc.pb.h"
#include "server/edge/stream_call.h"
#include "server/shard/replica.h"

namespace catchment {

using ReplicateCall = StreamCall<grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>>;
using RestoreCall = StreamCall<grpc::ServerAsyncWriter<v1::StandbyPart>, v1::StandbyHello>;

// The copy of one shard, and the epoch of the process whose changes it takes.
//
// Threads: safe.
class StandbyStore {
 public:
  // Stores a copy of shard `shard` of the layout, which must outlive the store.
  StandbyStore(const v1::Job& job, const ParameterLayout& layout, int shard);

  // Takes part in the run, and refuses all epochs below this one, which the master has named, from now on.
  // Before the first call nothing is admitted, because another process may have a higher epoch.
  void Join(uint64_t run_id, uint64_t lowest_epoch);

  // Admits a stream of the shard's server and returns its number, with which Add is called. It ends the one
  // before. Errors: see StandbyService.
  absl::StatusOr<uint64_t> Admit(const v1::StandbyHello& hello);
  // Adds the next part of a stream. Returns the number of the last change in the copy, 0 while an image is
  // incomplete.
  // Errors: Aborted if another stream has taken its place; those of Replica::Add.
  absl::StatusOr<uint64_t> Add(uint64_t stream, v1::StandbyPart part);
  // Does the same for a part that is a vector.
  absl::Status AddVector(uint64_t stream, absl::Cord vector);
  // Admits the process that restores the shard: earlier epochs are refused from now on. Errors: see
  // StandbyService.
  absl::Status AdmitRestore(const v1::StandbyHello& hello);
  // Passes the parts of the copy, as it is now, to `send`, until it returns false.
  void Export(absl::FunctionRef<bool(const v1::StandbyPart&)> send);
  // Returns the number of parameters of the shard.
  int64_t shard_values() const { return layout_.shard(shard_).size(); }

 private:
  absl::Status Check(const v1::StandbyHello& hello) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ParameterLayout& layout_;
  const int shard_;
  Mutex mu_;
  uint64_t run_id_ ABSL_GUARDED_BY(mu_) = 0;
  Replica replica_ ABSL_GUARDED_BY(mu_);
  uint64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;  // the lowest that is admitted; 0: none is
  uint64_t stream_ ABSL_GUARDED_BY(mu_) = 0;
};

// Threads: safe; it runs on those of the listener, and a restoration on a thread of its own.
class StandbyService final : public CallService {
  using Async = v1::StandbyService::WithRawMethod_Replicate<
      v1::StandbyService::WithAsyncMethod_Restore<v1::StandbyService::Service>>;

 public:
  // As ShardService::Front.
  class Front final : public CallService {
   public:
    grpc::Service* grpc_service() override { return &service_; }
    void Accept(CallQueue* queue) override;

   private:
    friend class StandbyService;
    Async service_;
    StandbyService* target_ = nullptr;
  };

  // `store` must outlive the service. `front` null: a front of its own.
  explicit StandbyService(StandbyStore* store, Front* front = nullptr)
      : front_(front == nullptr ? &own_front_ : front), store_(*store) {
    front_->target_ = this;
  }

  grpc::Service* grpc_service() override { return front_->grpc_service(); }
  void Accept(CallQueue* queue) override { front_->Accept(queue); }

 private:
  void Replicate(ReplicateCall* call);
  void Restore(RestoreCall* call);

  Front own_front_;
  Front* const front_;
  StandbyStore& store_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_STANDBY_SERVICE_H_
