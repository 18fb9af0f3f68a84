// One worker's connection to a shard (ShardService.Train): blocks in, answers out.
#ifndef CATCHMENT_SERVER_EDGE_TRAIN_STREAM_H_
#define CATCHMENT_SERVER_EDGE_TRAIN_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "common/wire/grpc_frame.h"
#include "proto/wire.pb.h"
#include "server/shard.h"

namespace catchment {

// Made for a call whose Hello was accepted; deletes itself when gRPC is done with it.
class TrainStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `context` is the call's.
  TrainStream(grpc::CallbackServerContext* context, Shard* shard, const v1::Hello& hello);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  class Outbox;

  absl::Status HandleMessage();

  Shard* const shard_;
  const uint32_t worker_;
  const uint64_t incarnation_;
  const std::shared_ptr<Outbox> outbox_;
  grpc::ByteBuffer incoming_;
  ReceivedFrame frame_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_TRAIN_STREAM_H_
