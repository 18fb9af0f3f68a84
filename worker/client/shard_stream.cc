#include "worker/client/shard_stream.h"

#include "common/rpc.h"
#include "common/wire/protocol.h"

namespace catchment {
namespace {

constexpr char kMethod[] = "/catchment.v1.ShardService/Train";

}  // namespace

ShardStream::ShardStream(const std::shared_ptr<grpc::Channel>& channel, const v1::Hello& hello,
                         AnswerHandler on_answer, ClosedHandler on_closed)
    : stub_(channel), on_answer_(std::move(on_answer)), on_closed_(std::move(on_closed)) {
  context_.AddMetadata(kHelloKey, hello.SerializeAsString());
  stub_.PrepareBidiStreamingCall(&context_, kMethod, grpc::StubOptions(), this);
  // Writes come from outside gRPC's callbacks: the hold keeps the call from ending under them.
  AddHold();
  StartRead(&incoming_);
  StartCall();
}

ShardStream::~ShardStream() {
  Cancel();
  MutexLock lock(&mu_);
  changed_.Wait(&mu_, [this] { return done_; });
}

void ShardStream::Cancel() { context_.TryCancel(); }

void ShardStream::Send(const BlockHeader& header, absl::string_view payload) {
  grpc::ByteBuffer frame =
      Frame(header, payload.empty() ? grpc::Slice()
                                    : grpc::Slice(payload.data(), payload.size(), grpc::Slice::STATIC_SLICE));
  MutexLock lock(&mu_);
  if (ending_) return;
  queue_.push_back(std::move(frame));
  WriteNext();
}

void ShardStream::WriteNext() {
  if (writing_ || queue_.empty() || ending_) return;
  writing_ = true;
  StartWrite(&queue_.front());
}

void ShardStream::OnWriteDone(bool ok) {
  MutexLock lock(&mu_);
  writing_ = false;
  queue_.pop_front();
  if (ok) WriteNext();
}

void ShardStream::OnReadDone(bool ok) {
  absl::Status status;
  if (ok) {
    status = frame_.Decode(incoming_);
    if (status.ok()) status = on_answer_(frame_.header(), frame_.payload());
    if (status.ok()) {
      StartRead(&incoming_);
      return;
    }
    context_.TryCancel();
  }
  {
    MutexLock lock(&mu_);
    ending_ = true;
    error_ = status;
  }
  RemoveHold();
}

void ShardStream::OnDone(const grpc::Status& status) {
  absl::Status result;
  {
    MutexLock lock(&mu_);
    result = error_.ok() ? FromGrpc(status) : error_;
  }
  // A stream that the server ends without an error has ended all the same.
  on_closed_(result.ok() ? absl::UnavailableError("the server closed the connection") : result);
  MutexLock lock(&mu_);
  done_ = true;
  changed_.Notify();
}

}  // namespace catchment
