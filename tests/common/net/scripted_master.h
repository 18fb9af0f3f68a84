// A master that answers as a test says, for tests of its clients.
#ifndef CATCHMENT_TESTS_COMMON_NET_SCRIPTED_MASTER_H_
#define CATCHMENT_TESTS_COMMON_NET_SCRIPTED_MASTER_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/net/rpc.h"
#include "common/wire/protocol.h"
#include "proto/master.grpc.pb.h"
#include "tests/common/net/loopback_server.h"

namespace catchment {

// One method: its requests, and how it is answered.
//
// Threads: safe. A handler runs for one call at a time. It may use the other methods, but not its own.
template <typename Request, typename Reply>
class ScriptedCall {
 public:
  // Returns the status of a call, whose reply is the standing one until the handler changes it.
  using Handler = std::function<absl::Status(const Request&, Reply*)>;
  struct Arrival {
    double at = 0;            // seconds since a fixed time
    double seconds_left = 0;  // until the call's deadline
  };

  // Changes the standing reply.
  void EditReply(const std::function<void(Reply*)>& edit) {
    MutexLock lock(&mu_);
    edit(&reply_);
  }
  // Answers the next calls with these replies in turn; the last one becomes the standing reply.
  void Queue(std::vector<Reply> replies) {
    MutexLock lock(&mu_);
    for (Reply& reply : replies) queue_.push_back(std::move(reply));
  }
  void SetHandler(Handler handler) {
    MutexLock lock(&mu_);
    handler_ = std::move(handler);
  }
  void Fail(absl::Status status) {
    SetHandler([status = std::move(status)](const Request&, Reply*) { return status; });
  }
  // Lets calls for which no reply is queued wait until their callers cancel them.
  void Hold() {
    MutexLock lock(&mu_);
    holds_ = true;
  }

  std::vector<Request> requests() const {
    MutexLock lock(&mu_);
    return requests_;
  }
  std::vector<Arrival> arrivals() const {
    MutexLock lock(&mu_);
    return arrivals_;
  }
  // Waits until so many calls have arrived. Returns all requests.
  std::vector<Request> Await(size_t count) const {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [&] { return requests_.size() >= count; });
    return requests_;
  }
  // Waits until the last request meets the condition, and returns it.
  Request AwaitLast(const std::function<bool(const Request&)>& condition) const {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [&] { return !requests_.empty() && condition(requests_.back()); });
    return requests_.back();
  }

  // Called by the master.
  grpc::Status Answer(const grpc::ServerContext& context, const Request& request, Reply* reply) {
    const std::chrono::duration<double> left = context.deadline() - std::chrono::system_clock::now();
    const std::chrono::duration<double> at = std::chrono::steady_clock::now().time_since_epoch();
    MutexLock lock(&mu_);
    requests_.push_back(request);
    arrivals_.push_back({at.count(), left.count()});
    changed_.Notify();
    if (queue_.empty() && holds_) {
      while (!context.IsCancelled()) changed_.WaitFor(&mu_, 0.01, [] { return false; });
      return grpc::Status::CANCELLED;
    }
    if (!queue_.empty()) {
      reply_ = std::move(queue_.front());
      queue_.pop_front();
    }
    *reply = reply_;
    return handler_ ? ToGrpc(handler_(request, reply)) : grpc::Status::OK;
  }

 private:
  mutable Mutex mu_;
  mutable CondVar changed_;
  Reply reply_ ABSL_GUARDED_BY(mu_);
  std::deque<Reply> queue_ ABSL_GUARDED_BY(mu_);
  Handler handler_ ABSL_GUARDED_BY(mu_);
  bool holds_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Request> requests_ ABSL_GUARDED_BY(mu_);
  std::vector<Arrival> arrivals_ ABSL_GUARDED_BY(mu_);
};

// By default it registers whoever asks, with 1, 2, ... as incarnations, and has nothing to do for it: the job
// is finished. Methods that it does not list are not implemented.
class ScriptedMaster final : public v1::MasterService::Service {
 public:
  explicit ScriptedMaster(const v1::Job& job = {}, const std::string& server = "127.0.0.1:1") {
    get_job.EditReply([&](v1::GetJobReply* reply) {
      reply->set_protocol_version(kProtocolVersion);
      reply->set_run_id(1);
      reply->add_servers(server);
      *reply->mutable_job() = job;
    });
    register_member.EditReply([](v1::RegisterReply* reply) { reply->set_heartbeat_timeout_seconds(100); });
    register_member.SetHandler([members = uint64_t{0}](const auto&, v1::RegisterReply* reply) mutable {
      reply->set_incarnation(++members);
      return absl::OkStatus();
    });
    get_lease.EditReply([](v1::Lease* lease) { lease->set_state(v1::Lease::FINISHED); });
    get_evaluation.EditReply([](v1::GetEvaluationReply* reply) { reply->set_stop(true); });
  }

  ScriptedCall<v1::GetJobRequest, v1::GetJobReply> get_job;
  ScriptedCall<v1::RegisterServerRequest, v1::RegisterServerReply> register_server;
  ScriptedCall<v1::RegisterRequest, v1::RegisterReply> register_member;  // Register
  ScriptedCall<v1::HeartbeatRequest, v1::HeartbeatReply> heartbeat;
  ScriptedCall<v1::GetLeaseRequest, v1::Lease> get_lease;
  ScriptedCall<v1::LeaveRequest, v1::LeaveReply> leave;
  ScriptedCall<v1::GetEvaluationRequest, v1::GetEvaluationReply> get_evaluation;
  ScriptedCall<v1::GetStatusRequest, v1::JobStatus> get_status;
  ScriptedCall<v1::StopRequest, v1::StopReply> stop;

  std::string address() const { return server_.address(); }
  // Ends the server; the address is free again.
  void Shutdown() { server_.Shutdown(); }

 private:
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::GetJobReply* reply) override {
    return get_job.Answer(*context, *request, reply);
  }
  grpc::Status RegisterServer(grpc::ServerContext* context, const v1::RegisterServerRequest* request,
                              v1::RegisterServerReply* reply) override {
    return register_server.Answer(*context, *request, reply);
  }
  grpc::Status Register(grpc::ServerContext* context, const v1::RegisterRequest* request,
                        v1::RegisterReply* reply) override {
    return register_member.Answer(*context, *request, reply);
  }
  grpc::Status Heartbeat(grpc::ServerContext* context, const v1::HeartbeatRequest* request,
                         v1::HeartbeatReply* reply) override {
    return heartbeat.Answer(*context, *request, reply);
  }
  grpc::Status GetLease(grpc::ServerContext* context, const v1::GetLeaseRequest* request,
                        v1::Lease* lease) override {
    return get_lease.Answer(*context, *request, lease);
  }
  grpc::Status Leave(grpc::ServerContext* context, const v1::LeaveRequest* request,
                     v1::LeaveReply* reply) override {
    return leave.Answer(*context, *request, reply);
  }
  grpc::Status GetEvaluation(grpc::ServerContext* context, const v1::GetEvaluationRequest* request,
                             v1::GetEvaluationReply* reply) override {
    return get_evaluation.Answer(*context, *request, reply);
  }
  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest* request,
                         v1::JobStatus* status) override {
    return get_status.Answer(*context, *request, status);
  }
  grpc::Status Stop(grpc::ServerContext* context, const v1::StopRequest* request,
                    v1::StopReply* reply) override {
    return stop.Answer(*context, *request, reply);
  }

  LoopbackServer server_{this};
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_COMMON_NET_SCRIPTED_MASTER_H_
