// Receives the weights of the best evaluation in several messages (MasterService.KeepBest).
#ifndef CATCHMENT_SERVER_EDGE_KEEP_BEST_STREAM_H_
#define CATCHMENT_SERVER_EDGE_KEEP_BEST_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>

#include "proto/master.grpc.pb.h"
#include "server/edge/stream_call.h"
#include "server/host/best_keeper.h"

namespace catchment {

using KeepBestCall = StreamCall<grpc::ServerAsyncReader<v1::KeepBestReply, v1::BestWeights>>;

// Threads: its queue's; the answer is sent by the keeper's.
class KeepBestStream final : public StreamOwner {
 public:
  // Lives until the call ends. `keeper` outlives it.
  static void Start(KeepBestCall* call, BestKeeper* keeper) { new KeepBestStream(call, keeper); }

 private:
  KeepBestStream(KeepBestCall* call, BestKeeper* keeper);

  void OnReadDone(bool ok) override;
  void OnDone() override { delete this; }
  absl::Status Take();
  void Answer(const absl::Status& status);

  KeepBestCall& call_;
  BestKeeper& keeper_;
  v1::BestWeights message_;
  uint64_t stream_ = 0;  // 0: not begun
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_KEEP_BEST_STREAM_H_
