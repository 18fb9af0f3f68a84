#include "common/net/message_stream.h"

#include "common/net/rpc.h"

namespace catchment {

MessageStream::MessageStream(const std::shared_ptr<grpc::Channel>& channel, grpc::CompletionQueue* queue,
                             const Call& call, Owner* owner)
    : queue_(queue),
      stub_(channel),
      call_((context_.AddMetadata(call.key, call.value), stub_.PrepareCall(&context_, call.method, queue))),
      owner_(*owner) {
  under_way_ = 3;
  call_->StartCall(written_.Tag());
  call_->Read(&incoming_, read_.Tag());
}

MessageStream::~MessageStream() {
  Cancel();
  MutexLock lock(&mu_);
  changed_.Wait(&mu_, [this] { return done_; });
}

void MessageStream::Cancel() { context_.TryCancel(); }

void MessageStream::Wake() {
  if (BeginToWrite()) to_queue_.Set(queue_, gpr_inf_past(GPR_CLOCK_MONOTONIC), woken_up_.Tag());
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
    if (owner_.Next(&outgoing_)) break;
  }
  ++under_way_;
  call_->Write(outgoing_, written_.Tag());
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
  absl::Status status;
  if (ok) {
    status = owner_.OnMessage(incoming_);
    if (status.ok()) {
      call_->Read(&incoming_, read_.Tag());
      return;
    }
    context_.TryCancel();
  }
  {
    MutexLock lock(&mu_);
    ending_ = true;
    error_ = status;
  }
  call_->Finish(&status_, finished_.Tag());
  Leave();
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
