// The calls of a server, on completion queues (common/net/completion.h). An object exists from the time when
// it waits for a call to the end of the call. Calls that the caller may not make (permission.h) or whose
// request is out of bounds (message_limits.h) are refused here, and so are those between two runs of a job.
#ifndef CATCHMENT_SERVER_EDGE_CALLS_H_
#define CATCHMENT_SERVER_EDGE_CALLS_H_

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/async_unary_call.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/net/completion.h"
#include "common/net/message_limits.h"
#include "common/net/message_pipe.h"
#include "common/net/rpc.h"
#include "server/edge/peer_account.h"
#include "server/edge/permission.h"

namespace catchment {

// Admits the calls that concern a run of the job, so that a listener may serve one run after another, whose
// objects it outlives.
//
// Threads: safe.
class RunCalls {
 public:
  // `waits`: begins without a run, for the reason that callers are told. Empty: begins with a run.
  explicit RunCalls(const std::string& waits = "") : open_(waits.empty()), closed_because_(waits) {}
  // Begins a run. Between End and Begin no call is admitted: callers are told that the server is not ready.
  void Begin();
  // Gives the calls in progress `grace_seconds` to end, cancels the others, and returns when all have ended.
  void End(double grace_seconds);

 private:
  friend class RunCall;
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_);
  std::string closed_because_ ABSL_GUARDED_BY(mu_);
  std::unordered_set<grpc::ServerContext*> calls_ ABSL_GUARDED_BY(mu_);
};

// The part of a call in a run: from Enter to destruction.
class RunCall {
 public:
  // Both outlive the object. `runs` null: the call concerns no run.
  RunCall(RunCalls* runs, grpc::ServerContext* context) : runs_(runs), context_(context) {}
  ~RunCall();
  // NotReady before the first run and between two.
  absl::Status Enter();

 private:
  RunCalls* const runs_;
  grpc::ServerContext* const context_;
  bool entered_ = false;
};

// The part of a call in the account of its connection, if it has one.
class AccountedCall {
 public:
  ~AccountedCall() {
    if (is_stream_) account_->StreamEnded();
  }
  void Begin(const PeerAccounts& accounts, const grpc::ServerContext& context) {
    account_ = accounts.Find(context.peer());
    if (account_ != nullptr) account_->CallBegan();
  }
  template <typename Message>
  void OnMessage(const Message& message) {
    if (account_ != nullptr) account_->MessageArrived(SizeOf(message));
  }
  void OnStream() {
    if (account_ == nullptr || is_stream_) return;
    is_stream_ = true;
    account_->StreamAdmitted();
  }
  // `ok`: the status is on the network, as gRPC says for Finish.
  void OnFinish(bool ok) {
    if (account_ != nullptr && ok) account_->CallAnswered();
  }

 private:
  static size_t SizeOf(const google::protobuf::Message& message) { return message.ByteSizeLong(); }
  static size_t SizeOf(const grpc::ByteBuffer& message) { return message.Length(); }
  static size_t SizeOf(std::nullptr_t) { return 0; }

  std::shared_ptr<PeerAccount> account_;
  bool is_stream_ = false;
};

// A server's completion queue with the calls on it. The queue may be shut down when there are none.
class CallQueue {
 public:
  // `runs` admits the calls; null: all are admitted. `accounts` has those of the connections. `pipes` has the
  // pipes to processes on this machine, in which messages of more than `most_bytes` are refused. All outlive
  // the queue.
  CallQueue(grpc::ServerCompletionQueue* queue, RunCalls* runs, const PeerAccounts* accounts,
            PipeThread* pipes, uint32_t most_bytes)
      : queue_(queue), runs_(runs), accounts_(*accounts), pipes_(*pipes), most_bytes_(most_bytes) {}

  grpc::ServerCompletionQueue* get() const { return queue_; }
  RunCalls* runs() const { return runs_; }
  const PeerAccounts& accounts() const { return accounts_; }
  absl::StatusOr<std::shared_ptr<MessagePipe>> MakePipe(v1::Pipes* offer) {
    return MessagePipe::Make(&pipes_, most_bytes_, offer);
  }
  void Enter();
  void Leave();
  // Waits until all calls have ended; to be called after the server's Shutdown.
  void WaitUntilEmpty();

 private:
  grpc::ServerCompletionQueue* const queue_;
  RunCalls* const runs_;
  const PeerAccounts& accounts_;
  PipeThread& pipes_;
  const uint32_t most_bytes_;
  Mutex mu_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
};

// A service.
class CallService {
 public:
  virtual ~CallService() = default;
  virtual grpc::Service* grpc_service() = 0;
  // Returns true if its calls concern a run of the job (RunCalls).
  virtual bool is_of_runs() const { return true; }
  // Begins to wait for the first call of each method on this queue. Called once for each queue, when the
  // server runs.
  virtual void Accept(CallQueue* queue) = 0;
};

// A method with one request and one reply, received and sent by the generated code of a service.
template <typename Service, typename RequestMessage, typename ReplyMessage>
class GeneratedMethod {
 public:
  using Request = RequestMessage;
  using Reply = ReplyMessage;
  using Writer = grpc::ServerAsyncResponseWriter<Reply>;
  using Ask = void (Service::*)(grpc::ServerContext*, Request*, Writer*, grpc::CompletionQueue*,
                                grpc::ServerCompletionQueue*, void*);

  GeneratedMethod(Service* service, Ask ask) : service_(*service), ask_(ask) {}

  // Asks gRPC for the next call.
  void AskForNext(grpc::ServerContext* context, Request* request, Writer* writer,
                  grpc::ServerCompletionQueue* queue, void* tag) const {
    (service_.*ask_)(context, request, writer, queue, queue, tag);
  }
  // Notes on a request what gRPC knows of its sender.
  void NoteSender(const grpc::ServerContext&, Request*) const {}
  // Return the messages on the network.
  const Request& MessageOf(const Request& request) const { return request; }
  const Reply& MessageOf(const Reply& reply) const { return reply; }

 private:
  Service& service_;
  const Ask ask_;
};

// A call of a method with one request and one reply, which may be sent later and from any thread. `Method` is
// GeneratedMethod, or has its interface.
template <typename Method>
class MethodCall final : public Completion {
 public:
  using Request = typename Method::Request;
  using Reply = typename Method::Reply;
  // Must be called once. The server ends only when all calls are answered.
  using Respond = std::function<void(absl::StatusOr<Reply>)>;
  // Runs on the queue's thread. The request lives until the call is answered.
  using Handler = std::function<void(const Request&, Respond)>;

  // Begins to take calls.
  static void Accept(CallQueue* queue, Permission permission, Method method, Handler handler) {
    new MethodCall(queue, permission, std::move(method), std::move(handler));
  }

  void Done(bool ok) override {
    if (answered_) accounted_.OnFinish(ok);
    if (!ok || answered_) {
      delete this;
      return;
    }
    answered_ = true;
    Accept(&queue_, permission_, method_, handler_);
    accounted_.Begin(queue_.accounts(), context_);
    const auto& message = method_.MessageOf(request_);
    accounted_.OnMessage(message);
    absl::Status status = run_.Enter();
    if (status.ok()) status = permission_.Check(context_, message);
    if (status.ok()) status = CheckLimits(message);
    if (!status.ok()) {
      writer_.FinishWithError(ToGrpc(status), Tag());
      return;
    }
    method_.NoteSender(context_, &request_);
    // The call may have been answered and destroyed before the handler returns.
    handler_(request_, [this](const absl::StatusOr<Reply>& reply) {
      if (reply.ok()) {
        writer_.Finish(method_.MessageOf(*reply), grpc::Status::OK, Tag());
      } else {
        writer_.FinishWithError(ToGrpc(reply.status()), Tag());
      }
    });
  }

 private:
  MethodCall(CallQueue* queue, Permission permission, Method method, Handler handler)
      : queue_(*queue),
        permission_(permission),
        method_(std::move(method)),
        handler_(std::move(handler)),
        run_(queue->runs(), &context_) {
    queue_.Enter();
    method_.AskForNext(&context_, &request_, &writer_, queue_.get(), Tag());
  }
  ~MethodCall() { queue_.Leave(); }

  CallQueue& queue_;
  const Permission permission_;
  const Method method_;
  const Handler handler_;
  grpc::ServerContext context_;
  Request request_;
  typename Method::Writer writer_{&context_};
  bool answered_ = false;
  AccountedCall accounted_;
  RunCall run_;
};

template <typename Service, typename Request, typename Reply>
using DeferredCall = MethodCall<GeneratedMethod<Service, Request, Reply>>;

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_CALLS_H_
