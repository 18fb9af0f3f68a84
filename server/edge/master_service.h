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
  // Accepts calls of a method whose answers show the master's state, and leave when its standby has it.
  template <typename Request, typename Reply>
  void AcceptCommitted(CallQueue* queue, absl::string_view method,
                       typename DeferredCall<Async, Request, Reply>::Method ask,
                       typename DeferredCall<Async, Request, Reply>::Handler handler);
  // Answers when the master's standby has what the reply shows.
  template <typename Reply>
  void RespondCommitted(absl::StatusOr<Reply> reply, std::function<void(absl::StatusOr<Reply>)> respond);
  // Accepts other calls.
  void AcceptOthers(CallQueue* queue);

  MasterHost& host_;
  const std::string token_key_;
  Async service_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_
