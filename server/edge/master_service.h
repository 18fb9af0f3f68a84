// The gRPC service of the master. It passes every call on to the host.
#ifndef CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_
#define CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "proto/master.grpc.pb.h"
#include "server/edge/calls.h"
#include "server/master/master_host.h"

namespace catchment {

// Threads: safe; it runs on those of the listener.
class MasterService final : public CallService {
 public:
  // `host` outlives the service.
  explicit MasterService(MasterHost* host) : host_(*host), token_key_(host->token_key()) {}

  grpc::Service* grpc_service() override { return &service_; }
  void Accept(CallQueue* queue) override;

 private:
  using Async = v1::MasterService::AsyncService;

  // Returns the permission for calls of a method.
  Permission For(absl::string_view method) const;
  // Accepts the calls without a reply or request message, and streams.
  void AcceptOthers(CallQueue* queue);

  MasterHost& host_;
  const std::string token_key_;
  Async service_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_
