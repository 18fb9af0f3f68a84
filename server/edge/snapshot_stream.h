// Sends a copy of a shard block by block (ShardService.Snapshot).
#ifndef CATCHMENT_SERVER_EDGE_SNAPSHOT_STREAM_H_
#define CATCHMENT_SERVER_EDGE_SNAPSHOT_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "common/base/mutex.h"
#include "proto/wire.grpc.pb.h"
#include "server/edge/rate_floor.h"
#include "server/edge/stream_call.h"
#include "server/edge/stream_table.h"
#include "server/shard/shard.h"

namespace catchment {

using SnapshotCall = StreamCall<grpc::ServerAsyncWriter<v1::Block>, v1::SnapshotRequest>;

// Threads: its queue's and the sweeper's; safe.
class SnapshotStream final : public StreamOwner,
                             public ServedStream,
                             public std::enable_shared_from_this<SnapshotStream> {
 public:
  // The stream lives until the call ends, and then removes itself from `table`.
  SnapshotStream(SnapshotCall* call, Shard* shard, StreamTable* table, const RateFloor& floor)
      : shard_(*shard), table_(*table), call_(call), floor_(floor) {}
  void Start();

  void Sweep(double now) override;
  void Replace() override {}

 private:
  void OnWriteDone(bool ok) override;
  void OnDone() override;
  void WriteNext();
  // Returns the call. The stream must not have ended.
  SnapshotCall& call();

  Shard& shard_;
  StreamTable& table_;
  std::shared_ptr<SnapshotStream> self_;  // until OnDone
  std::unique_ptr<PendingWeights> weights_;
  int next_ = 0;
  v1::Block block_;

  Mutex mu_;
  SnapshotCall* call_ ABSL_GUARDED_BY(mu_);  // null once it has ended
  RateFloor floor_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_sent_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_SNAPSHOT_STREAM_H_
