// The streaming calls of a server, on completion queues and pipes.
#ifndef CATCHMENT_SERVER_EDGE_STREAM_CALL_H_
#define CATCHMENT_SERVER_EDGE_STREAM_CALL_H_

#include <glog/logging.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/slice.h>

#include <atomic>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/completion.h"
#include "common/net/message_limits.h"
#include "common/net/message_pipe.h"
#include "common/net/rpc.h"
#include "server/edge/calls.h"
#include "server/edge/permission.h"
#include "server/shard/buffer_pool.h"

namespace catchment {

// Serves a streaming call. Its methods are called on the queue's thread or on that of the pipes, each of them
// one at a time.
class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  virtual void OnReadDone(bool ok) {}
  virtual void OnWriteDone(bool ok) {}
  // Called last, after Finish, when no operation is in progress. The call is destroyed after it.
  virtual void OnDone() = 0;
};

// A streaming call. `Stream` is grpc::ServerAsyncReaderWriter, ServerAsyncWriter or ServerAsyncReader;
// `Request` is the message before the stream, if there is one.
//
// Threads: one read and one write at a time, from any thread; Finish once, when no write is in progress.
template <typename Stream, typename Request = std::nullptr_t>
class StreamCall final {
 public:
  // Asks gRPC for the next call of the method.
  using Next = std::function<void(StreamCall* call, void* tag)>;
  // Takes a call: either calls Start for its owner, or only Finish.
  using Taker = std::function<void(StreamCall* call)>;

  // Begins to take calls.
  static void Accept(CallQueue* queue, Permission permission, Next next, Taker taker) {
    new StreamCall(queue, permission, std::move(next), std::move(taker));
  }

  void Start(StreamOwner* owner) { owner_ = owner; }
  // Offers pipes to a peer that is a process on this machine and of this user (common/net/message_pipe.h).
  // Messages move there if the peer agrees. To be called before the first operation.
  void OfferPipes() {
    v1::Pipes offer;
    absl::StatusOr<std::shared_ptr<MessagePipe>> pipe = queue.MakePipe(&offer);
    if (!pipe.ok()) {
      LOG(WARNING) << "no pipe to a process on this machine can be made: " << pipe.status().message();
      return;
    }
    pipe_ = *std::move(pipe);
    context.AddInitialMetadata(kPipesKey, offer.SerializeAsString());
  }

  template <typename Message>
  void StartRead(Message* message) {
    ++in_flight_;
    if constexpr (std::is_same_v<Message, grpc::ByteBuffer>) {
      incoming_ = message;
      if (piped_) return pipe_->Read(message, &piped_read_);
    }
    accounted_.OnStream();
    arrived_ = [this, message] { accounted_.OnMessage(*message); };
    stream.Read(message, read_.Tag());
  }
  // Returns true if the message was sent at once: then OnWriteDone is not called.
  template <typename Message>
  bool StartWrite(const Message& message) {
    ++in_flight_;
    if constexpr (std::is_same_v<Message, grpc::ByteBuffer>) {
      if (piped_) {
        if (!pipe_->Write(message, &piped_write_)) return false;
        --in_flight_;  // never to zero, before Finish
        return true;
      }
    }
    stream.Write(message, write_.Tag());
    return false;
  }
  void Finish(const grpc::Status& status) { stream.Finish(status, finish_.Tag()); }
  // For a ServerAsyncReader, whose only answer is sent at the end.
  template <typename Reply>
  void Finish(const Reply& reply, const grpc::Status& status) {
    stream.Finish(reply, status, finish_.Tag());
  }
  void Refuse(const absl::Status& status) {
    if constexpr (requires { stream.FinishWithError(grpc::Status(), nullptr); }) {
      stream.FinishWithError(ToGrpc(status), finish_.Tag());
    } else {
      stream.Finish(ToGrpc(status), finish_.Tag());
    }
  }
  // Cancels the call: operations in progress fail. Finish must still be called.
  void Cancel() { context.TryCancel(); }

  CallQueue& queue;
  const Permission permission;
  grpc::ServerContext context;
  Request request{};
  Stream stream{&context};

 private:
  StreamCall(CallQueue* queue, Permission permission, Next next, Taker taker)
      : queue(*queue),
        permission(permission),
        next_(std::move(next)),
        taker_(std::move(taker)),
        run_(queue->runs(), &context) {
    queue->Enter();
    next_(this, accept_.Tag());
  }
  ~StreamCall() {
    if (pipe_ != nullptr) pipe_->Leave();
    queue.Leave();
  }

  void OnAccept(bool ok) {
    if (!ok) {
      delete this;
      return;
    }
    Accept(&queue, permission, next_, taker_);
    accounted_.Begin(queue.accounts(), context);
    accounted_.OnMessage(request);
    absl::Status status = run_.Enter();
    if (status.ok()) status = permission.Check(context, request);
    if constexpr (!std::is_same_v<Request, std::nullptr_t>) status.Update(CheckLimits(request));
    if (!status.ok()) return Refuse(status);
    taker_(this);
  }
  void OnRead(bool ok) {
    if (ok) arrived_();
    if (ok && pipe_ != nullptr && incoming_->Length() == 0) return MoveToPipes();
    OnPipedRead(ok);
  }
  void OnPipedRead(bool ok) {
    if (owner_ != nullptr) owner_->OnReadDone(ok);
    Leave();
  }
  // The peer has opened the pipes. The stream itself is only read for its end.
  void MoveToPipes() {
    if constexpr (std::is_same_v<Stream, grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>>) {
      piped_ = true;
      ++in_flight_;
      stream.Read(&unexpected_, end_.Tag());
      pipe_->Read(incoming_, &piped_read_);
    }
  }
  void OnEnd(bool ok) {
    // A peer that sends something here violates the protocol.
    if (ok) context.TryCancel();
    pipe_->Close();
    Leave();
  }
  void OnWrite(bool ok) {
    if (owner_ != nullptr) owner_->OnWriteDone(ok);
    Leave();
  }
  void OnFinish(bool ok) {
    accounted_.OnFinish(ok);
    Leave();
  }

  // Finish counts as in progress from the beginning.
  void Leave() {
    if (--in_flight_ > 0) return;
    if (owner_ != nullptr) owner_->OnDone();
    delete this;
  }

  const Next next_;
  const Taker taker_;
  StreamOwner* owner_ = nullptr;
  std::atomic<int> in_flight_{1};
  MemberCompletion<StreamCall> accept_{this, &StreamCall::OnAccept};
  MemberCompletion<StreamCall> read_{this, &StreamCall::OnRead};
  MemberCompletion<StreamCall> write_{this, &StreamCall::OnWrite};
  MemberCompletion<StreamCall> finish_{this, &StreamCall::OnFinish};
  MemberCompletion<StreamCall> piped_read_{this, &StreamCall::OnPipedRead};
  MemberCompletion<StreamCall> piped_write_{this, &StreamCall::OnWrite};
  MemberCompletion<StreamCall> end_{this, &StreamCall::OnEnd};
  std::shared_ptr<MessagePipe> pipe_;     // null: none was offered
  std::atomic<bool> piped_{false};        // the messages are in it
  grpc::ByteBuffer* incoming_ = nullptr;  // of the read in progress
  grpc::ByteBuffer unexpected_;
  std::function<void()> arrived_;  // counts the message of the read in progress
  AccountedCall accounted_;
  RunCall run_;
};

// Returns a slice that owns the buffer, which returns to its pool when gRPC has sent it. Null: an empty
// slice.
inline grpc::Slice SliceOf(BufferPtr payload) {
  if (payload == nullptr) return grpc::Slice();
  float* const data = payload->data();
  const int64_t bytes = payload->bytes();
  return grpc::Slice(
      data, bytes, [](void* buffer) { BufferPtr::Adopt(static_cast<FloatBuffer*>(buffer)); },
      std::move(payload).Release());
}

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_STREAM_CALL_H_
