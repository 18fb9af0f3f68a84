#include "server/edge/snapshot_stream.h"

#include <utility>

namespace catchment {

void SnapshotStream::Start() {
  self_ = shared_from_this();
  weights_ = shard_.BeginWeights();
  block_.set_version(shard_.version());
  block_.set_fate(v1::Block::APPLIED);
  WriteNext();
}

void SnapshotStream::WriteNext() {
  if (next_ == shard_.num_blocks()) {
    call().Finish(grpc::Status::OK);
    return;
  }
  const BufferPtr weights = weights_->Next();
  block_.set_block(next_);
  block_.set_payload(reinterpret_cast<const char*>(weights->data()), weights->bytes());
  ++next_;
  call().StartWrite(block_);
}

SnapshotCall& SnapshotStream::call() {
  MutexLock lock(&mu_);
  return *call_;
}

void SnapshotStream::OnWriteDone(bool ok) {
  if (!ok) {
    call().Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the reader has left, or is too slow"));
    return;
  }
  {
    MutexLock lock(&mu_);
    bytes_sent_ += block_.payload().size();
  }
  WriteNext();
}

void SnapshotStream::OnDone() {
  {
    MutexLock lock(&mu_);
    call_ = nullptr;
  }
  weights_.reset();
  table_.Remove(this);
  const std::shared_ptr<SnapshotStream> last = std::move(self_);
}

// A peer that does not read cannot get the reason.
void SnapshotStream::Sweep(double now) {
  MutexLock lock(&mu_);
  if (call_ != nullptr && floor_.Check(now, 1, bytes_sent_)) call_->Cancel();
}

}  // namespace catchment
