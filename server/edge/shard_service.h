// gRPC's side of a shard: frames in, frames out. What it decides is only whether a peer keeps to the
// protocol; everything else is the shard's.
#ifndef CATCHMENT_SERVER_EDGE_SHARD_SERVICE_H_
#define CATCHMENT_SERVER_EDGE_SHARD_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>

#include "common/parameter_layout.h"
#include "proto/wire.grpc.pb.h"
#include "server/shard.h"

namespace catchment {

// Threads: safe; everything runs on gRPC's own, and a stream that waits holds none.
class ShardService final
    : public v1::ShardService::WithRawCallbackMethod_Train<v1::ShardService::WithCallbackMethod_Snapshot<
          v1::ShardService::WithCallbackMethod_Control<v1::ShardService::Service>>> {
 public:
  // Carries out the master's command and reports (server/shard_host.h).
  using ControlHandler = std::function<v1::ShardReport(const v1::ShardCommand&)>;

  // `shard` and `layout` outlive the service, and the service its streams: shut the gRPC server down first.
  ShardService(std::string job, const ParameterLayout& layout, Shard* shard, ControlHandler control);

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Train(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<v1::Block>* Snapshot(grpc::CallbackServerContext* context,
                                                const v1::SnapshotRequest* request) override;
  grpc::ServerUnaryReactor* Control(grpc::CallbackServerContext* context, const v1::ShardCommand* request,
                                    v1::ShardReport* reply) override;

 private:
  absl::Status Admit(const grpc::CallbackServerContext& context, v1::Hello* hello) const;

  const std::string job_;
  const ParameterLayout& layout_;
  Shard* const shard_;
  const ControlHandler control_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_SHARD_SERVICE_H_
