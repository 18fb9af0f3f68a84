// The gRPC service of the master. It passes every call on to the host.
#ifndef CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_
#define CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "proto/checkpoint.pb.h"
#include "proto/master.grpc.pb.h"
#include "server/edge/call_rate.h"
#include "server/edge/calls.h"
#include "server/host/master_host.h"

namespace catchment {

// Threads: safe; it runs on those of the listener.
class MasterService final : public CallService {
 public:
  // `clock` outlives the service.
  explicit MasterService(const Clock* clock) : clock_(*clock), registrations_(kRegistrations, clock) {}
  MasterService(MasterHost* host, const Clock* clock) : MasterService(clock) { Serve(host); }

  // Passes calls on to the host of another run, which must last until the run has ended at the listener. To
  // be called when no run is served.
  void Serve(MasterHost* host);

  grpc::Service* grpc_service() override { return &service_; }
  void Accept(CallQueue* queue) override;

 private:
  using Async = v1::MasterService::AsyncService;

  // 2,000 workers of one address, such as those behind a gateway, register at once, and 10,000, the largest
  // job, within 32 s, before workers give up. At this rate registrations, each of which changes the rosters
  // of all shards, take a small part of the master's time.
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

  // Adds the time on the master's clock to an answer.
  template <typename Reply>
  absl::StatusOr<Reply> WithTime(absl::StatusOr<Reply> reply) const {
    if (reply.ok()) reply->set_master_time(clock_.Now());
    return reply;
  }

  const Clock& clock_;
  MasterHost* host_ = nullptr;
  std::string token_key_;
  CallRate registrations_;
  Async service_;
};

// Tells members of a job that has ended how it ended: the process replaces a master that was lost, or has
// ended its run, before all of them knew.
//
// Threads: safe; it runs on those of the listener.
class EndedMasterService final : public CallService {
 public:
  // `on_told` is called each time a worker or an evaluator has asked for the job and was told of its end.
  EndedMasterService(v1::RunRecord record, std::function<void()> on_told);

  grpc::Service* grpc_service() override { return &service_; }
  bool is_of_runs() const override { return false; }
  void Accept(CallQueue* queue) override;

 private:
  // Without KeepBest, whose evaluators need a token.
  using Async = v1::MasterService::AsyncService;

  Permission For(absl::string_view method) const;
  // FailedPrecondition if the job has failed.
  absl::Status Failure() const;
  // Answers calls of members with an error upon which they request the job.
  template <typename Request, typename Reply>
  void Refuse(CallQueue* queue, absl::string_view method,
              typename DeferredCall<Async, Request, Reply>::Method ask,
              absl::StatusCode code = absl::StatusCode::kNotFound);

  const v1::RunRecord record_;
  const std::function<void()> on_told_;
  const std::string token_key_;  // of no run
  Async service_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_
