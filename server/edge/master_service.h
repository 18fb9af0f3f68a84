// The gRPC service of the master. It passes every call on to the host.
#ifndef CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_
#define CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "proto/master.grpc.pb.h"
#include "server/edge/call_rate.h"
#include "server/edge/calls.h"
#include "server/master/master_host.h"

namespace catchment {

// Threads: safe; it runs on those of the listener.
class MasterService final : public CallService {
 public:
  // `host` and `clock` outlive the service.
  MasterService(MasterHost* host, const Clock* clock)
      : host_(*host), token_key_(host->token_key()), registrations_(kRegistrations, clock) {}

  grpc::Service* grpc_service() override { return &service_; }
  void Accept(CallQueue* queue) override;

 private:
  using Async = v1::MasterService::AsyncService;

  // 2,000 workers of one address, such as those behind a gateway, register at once, and 10,000, the largest job, within
  // 32 s, before workers give up. At this rate registrations, each of which changes the rosters of all shards, take a
  // small part of the master's time.
  static constexpr CallRate::Options kRegistrations = {.per_second = 250, .burst = 2000};

  // Returns the permission for calls of a method.
  Permission For(absl::string_view method, CallRate* rate = nullptr) const;
  // Accepts calls whose answers show the master's state, and leave when its standby has it.
  template <typename Request, typename Reply>
  void AcceptCommitted(CallQueue* queue, const Permission& permission,
                       typename DeferredCall<Async, Request, Reply>::Method ask,
                       typename DeferredCall<Async, Request, Reply>::Handler handler);
  // Answers when the master's standby has what the reply shows.
  template <typename Reply>
  void RespondCommitted(absl::StatusOr<Reply> reply, std::function<void(absl::StatusOr<Reply>)> respond);
  // Accepts other calls.
  void AcceptOthers(CallQueue* queue);

  MasterHost& host_;
  const std::string token_key_;
  CallRate registrations_;
  Async service_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_
