#include "common/net/message_stream.h"

#include <glog/logging.h>

#include <limits>
#include <utility>

#include "common/net/rpc.h"

namespace catchment {

MessageStream::MessageStream(const std::shared_ptr<grpc::Channel>& channel, const ConnectionThreads& threads,
                             const Call& call, Owner* owner)
    : threads_(threads),
      stub_(channel),
      call_((context_.AddMetadata(call.key, call.value),
             stub_.PrepareCall(&context_, call.method, threads.queue))),
      owner_(*owner) {
  under_way_ = 3;
  call_->StartCall(written_.Tag());
  call_->Read(&incoming_, read_.Tag());
}

MessageStream::~MessageStream() {
  Cancel();
  MutexLock lock(&mu_);
  changed_.Wait(&mu_, [this] { return done_; });
  if (pipe_ != nullptr) pipe_->Leave();
}

void MessageStream::Cancel() { context_.TryCancel(); }

void MessageStream::Wake() {
  if (BeginToWrite()) to_queue_.Set(threads_.queue, gpr_inf_past(GPR_CLOCK_MONOTONIC), woken_up_.Tag());
}

void MessageStream::Send() {
  if (!BeginToWrite()) return;
  Write();
  Leave();
}

bool MessageStream::BeginToWrite() {
  MutexLock lock(&mu_);
  woken_ = true;
  if (writing_ || ending_) return false;
  writing_ = true;
  // The call must not end while this thread writes.
  ++under_way_;
  return true;
}

void MessageStream::OnWoken(bool) {
  Write();
  Leave();
}

void MessageStream::Write() {
  // A thread that wakes the stream while writing_ is set relies on this one to look once more.
  while (true) {
    {
      MutexLock lock(&mu_);
      if (!woken_) {
        writing_ = false;
        return;
      }
      woken_ = false;
    }
    while (Prepare()) {
      if (!Transmit()) return;
    }
  }
}

bool MessageStream::Prepare() {
  if (writes_ == kMoving) writes_ = kInPipe;
  if (writes_ == kOnStream) {
    MutexLock lock(&mu_);
    if (pipe_ != nullptr) {
      writes_ = kMoving;
      outgoing_ = grpc::ByteBuffer(nullptr, 0);
      return true;
    }
  }
  return owner_.Next(&outgoing_);
}

bool MessageStream::Transmit() {
  ++under_way_;
  if (writes_ != kInPipe) {
    call_->Write(outgoing_, written_.Tag());
    return false;
  }
  if (!pipe()->Write(outgoing_, &written_)) return false;
  --under_way_;  // never to zero: the caller is under way
  return true;
}

void MessageStream::OnWritten(bool ok) {
  {
    MutexLock lock(&mu_);
    writing_ = false;
  }
  if (ok) Send();
  Leave();
}

void MessageStream::OnRead(bool ok) {
  if (ok && !std::exchange(has_looked_for_pipes_, true)) LookForPipes();
  const absl::Status status = ok ? Receive(incoming_) : absl::OkStatus();
  if (ok && status.ok()) {
    call_->Read(&incoming_, read_.Tag());
    return;
  }
  {
    MutexLock lock(&mu_);
    ending_ = true;
  }
  if (pipe() != nullptr) pipe()->Close();
  call_->Finish(&status_, finished_.Tag());
  Leave();
}

void MessageStream::OnPipedRead(bool ok) {
  if (ok && Receive(piped_incoming_).ok()) return pipe()->Read(&piped_incoming_, &piped_read_);
  bool ending;
  {
    MutexLock lock(&mu_);
    ending = ending_;
  }
  if (!ending) context_.TryCancel();
  Leave();
}

MessagePipe* MessageStream::pipe() {
  MutexLock lock(&mu_);
  return pipe_.get();
}

absl::Status MessageStream::Receive(const grpc::ByteBuffer& message) {
  absl::Status status;
  {
    MutexLock lock(&receiving_);
    status = owner_.OnMessage(message);
  }
  if (status.ok()) return status;
  {
    MutexLock lock(&mu_);
    error_.Update(status);
  }
  context_.TryCancel();
  return status;
}

void MessageStream::LookForPipes() {
  const auto found = context_.GetServerInitialMetadata().find(kPipesKey);
  if (found == context_.GetServerInitialMetadata().end()) return;
  v1::Pipes offer;
  if (!offer.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()))) return;
  absl::StatusOr<std::shared_ptr<MessagePipe>> pipe =
      MessagePipe::Open(threads_.pipes, std::numeric_limits<int32_t>::max(), offer);
  if (!pipe.ok()) {
    LOG(INFO) << "no pipes to a server on this machine: " << pipe.status().message();
    return;
  }
  ++under_way_;
  {
    MutexLock lock(&mu_);
    pipe_ = *pipe;
  }
  (*pipe)->Read(&piped_incoming_, &piped_read_);
  Send();
}

void MessageStream::Leave() {
  if (--under_way_ == 0) OnDone();
}

void MessageStream::OnDone() {
  absl::Status result;
  {
    MutexLock lock(&mu_);
    result = error_.ok() ? FromGrpc(status_) : error_;
  }
  // A stream that the server ends without an error has ended all the same.
  owner_.OnClosed(result.ok() ? absl::UnavailableError("the server closed the connection") : result);
  MutexLock lock(&mu_);
  done_ = true;
  changed_.Notify();
}

}  // namespace catchment
