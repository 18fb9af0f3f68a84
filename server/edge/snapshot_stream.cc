#include "server/edge/snapshot_stream.h"

#include <utility>

namespace catchment {

void SnapshotStream::Start() {
  self_ = shared_from_this();
  if (!of_server_) weights_ = shard_.Weights();
  block_.set_version(shard_.version());
  block_.set_fate(v1::Block::APPLIED);
  WriteNext();
}

void SnapshotStream::WriteNext() {
  if (next_ == shard_.num_blocks()) {
    call().Finish(grpc::Status::OK);
    return;
  }
  const Range range = shard_.block_range(next_);
  block_.set_block(next_);
  const int64_t local = range.begin - shard_.block_range(0).begin;
  const BufferPtr own = of_server_ ? shard_.WeightsOfBlock(next_) : nullptr;
  const float* const values = of_server_ ? own->data() : weights_.data() + local;
  block_.set_payload(reinterpret_cast<const char*>(values), range.size() * sizeof(float));
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
  table_.Remove(this);
  const std::shared_ptr<SnapshotStream> last = std::move(self_);
}

// A peer that does not read cannot get the reason.
void SnapshotStream::Sweep(double now) {
  MutexLock lock(&mu_);
  if (call_ != nullptr && floor_.Check(now, 1, bytes_sent_)) call_->Cancel();
}

}  // namespace catchment
