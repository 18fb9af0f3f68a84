// The gRPC service of the master. It passes every call on to the host as a value (server/control/calls.h).
#ifndef CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_
#define CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_

#include <functional>
#include <string>

#include "common/base/clock.h"
#include "proto/checkpoint.pb.h"
#include "proto/master.grpc.pb.h"
#include "server/control/calls.h"
#include "server/edge/call_rate.h"
#include "server/edge/calls.h"
#include "server/host/master_host.h"

namespace catchment {

// The generated service. Its methods with one request are served by the table of server/control/calls.h: gRPC
// reads a request into its field of v1::Call, and sends the field of v1::Reply.
class MasterCalls final : public v1::MasterService::AsyncService {
 public:
  using Handler = std::function<void(const v1::Call&, Respond)>;
  // Begins to take calls of all methods with one request. `token_key` and `registrations`, which limits the
  // calls of Register and may be null, outlive the service.
  void Accept(CallQueue* queue, const std::string* token_key, CallRate* registrations,
              const Handler& handler);

 private:
  class Method;
};

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
  // 2,000 workers of one address, such as those behind a gateway, register at once, and 10,000, the largest
  // job, within 32 s, before workers give up. At this rate registrations, each of which changes the rosters
  // of all shards, take a small part of the master's time.
  static constexpr CallRate::Options kRegistrations = {.per_second = 250, .burst = 2000};

  const Clock& clock_;
  MasterHost* host_ = nullptr;
  std::string token_key_;
  CallRate registrations_;
  MasterCalls service_;
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
  // Without KeepBest, whose evaluators need a token.
  void Accept(CallQueue* queue) override;

 private:
  absl::StatusOr<v1::Reply> Answer(const v1::Call& call) const;

  const v1::RunRecord record_;
  const std::function<void()> on_told_;
  const std::string token_key_;  // of no run
  MasterCalls service_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_
