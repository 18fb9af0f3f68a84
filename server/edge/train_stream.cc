#include "server/edge/train_stream.h"

#include "absl/strings/str_cat.h"
#include "common/rpc.h"

namespace catchment {
namespace {

// The payload's memory belongs to the buffer, which goes back to its pool when gRPC has sent it.
grpc::Slice SliceOf(BufferPtr payload) {
  if (payload == nullptr) return grpc::Slice();
  auto* const holder = new BufferPtr(std::move(payload));
  return grpc::Slice((*holder)->data(), (*holder)->bytes(),
                     [](void* h) { delete static_cast<BufferPtr*>(h); }, holder);
}

}  // namespace

// Answers on their way, one write at a time. The shard may hold it longer than the stream lives.
class TrainStream::Outbox final : public AnswerSink {
 public:
  Outbox(TrainStream* stream, grpc::CallbackServerContext* context, size_t limit)
      : limit_(limit), stream_(stream), context_(context) {}

  void Deliver(Answer answer) override {
    MutexLock lock(&mu_);
    if (finishing_) return;
    // Nobody has so many answers to come who keeps to the protocol.
    if (queue_.size() >= limit_) {
      FinishLocked(absl::ResourceExhaustedError("the worker sends without reading its answers"));
      // The write under way would wait for the worker for ever.
      if (writing_) context_->TryCancel();
      return;
    }
    queue_.push_back(Frame(answer.header, SliceOf(std::move(answer.payload))));
    WriteNext();
  }

  bool finishing() {
    MutexLock lock(&mu_);
    return finishing_;
  }

  void Written(bool ok) {
    MutexLock lock(&mu_);
    writing_ = false;
    queue_.pop_front();
    if (!ok) queue_.clear();
    finishing_ ? FinishWhenIdle() : WriteNext();
  }

  // Ends the stream; answers not yet on their way are dropped.
  void Finish(const absl::Status& status) {
    MutexLock lock(&mu_);
    FinishLocked(status);
  }

 private:
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || queue_.empty()) return;
    writing_ = true;
    stream_->StartWrite(&queue_.front());
  }

  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finishing_) return;
    finishing_ = true;
    status_ = status;
    if (queue_.size() > 1) queue_.erase(queue_.begin() + 1, queue_.end());
    FinishWhenIdle();
  }

  void FinishWhenIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!writing_)
      stream_->grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>::Finish(ToGrpc(status_));
  }

  const size_t limit_;
  TrainStream* const stream_;                   // alive until Finish has been called
  grpc::CallbackServerContext* const context_;  // as long
  Mutex mu_;
  std::deque<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

TrainStream::TrainStream(grpc::CallbackServerContext* context, Shard* shard, const v1::Hello& hello)
    : shard_(shard),
      worker_(hello.worker()),
      incarnation_(hello.incarnation()),
      outbox_(std::make_shared<Outbox>(this, context, 4 * shard->num_blocks() + 16)) {
  StartRead(&incoming_);
}

void TrainStream::OnReadDone(bool ok) {
  if (!ok) {
    outbox_->Finish(absl::OkStatus());
    return;
  }
  if (outbox_->finishing()) return;
  if (absl::Status status = HandleMessage(); !status.ok()) {
    outbox_->Finish(status);
    return;
  }
  StartRead(&incoming_);
}

absl::Status TrainStream::HandleMessage() {
  if (absl::Status status = frame_.Decode(incoming_); !status.ok()) return status;
  Request request{worker_, incarnation_, frame_.header(), nullptr, outbox_};
  if (const size_t bytes = frame_.payload().size(); bytes > 0) {
    const BlockHeader& header = frame_.header();
    const size_t expected = header.block < static_cast<uint32_t>(shard_->num_blocks())
                                ? shard_->block_range(header.block).size() * sizeof(float)
                                : 0;
    if (bytes != expected) {
      return absl::InvalidArgumentError(absl::StrCat("block ", header.block, " of shard ", shard_->index(),
                                                     " takes ", expected, " bytes, and ", bytes, " came"));
    }
    request.payload = shard_->pool()->Get(bytes / sizeof(float));
    frame_.payload().CopyTo(request.payload->data());
  }
  std::vector<Answer> answers;
  if (absl::Status status = shard_->Handle(std::move(request), &answers); !status.ok()) return status;
  catchment::Deliver(&answers);
  return absl::OkStatus();
}

void TrainStream::OnWriteDone(bool ok) { outbox_->Written(ok); }

void TrainStream::OnDone() { delete this; }

}  // namespace catchment
