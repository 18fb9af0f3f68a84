#include "worker/client/shard_stream.h"

#include "common/rpc.h"
#include "common/wire/protocol.h"

namespace catchment {
namespace {

constexpr char kMethod[] = "/catchment.v1.ShardService/Train";

}  // namespace

ShardStream::ShardStream(const std::shared_ptr<grpc::Channel>& channel, grpc::CompletionQueue* queue,
                         const v1::Hello& hello, Owner* owner)
    : queue_(queue),
      stub_(channel),
      call_((context_.AddMetadata(kHelloKey, hello.SerializeAsString()),
             stub_.PrepareCall(&context_, kMethod, queue))),
      owner_(*owner) {
  under_way_ = 3;
  call_->StartCall(written_.Tag());
  call_->Read(&incoming_, read_.Tag());
}

ShardStream::~ShardStream() {
  Cancel();
  MutexLock lock(&mu_);
  changed_.Wait(&mu_, [this] { return done_; });
}

void ShardStream::Cancel() { context_.TryCancel(); }

void ShardStream::Wake() {
  if (BeginToWrite()) to_queue_.Set(queue_, gpr_inf_past(GPR_CLOCK_MONOTONIC), woken_up_.Tag());
}

void ShardStream::Send() {
  if (!BeginToWrite()) return;
  Write();
  Leave();
}

bool ShardStream::BeginToWrite() {
  MutexLock lock(&mu_);
  woken_ = true;
  if (writing_ || ending_) return false;
  writing_ = true;
  // The call must not end under whoever writes.
  ++under_way_;
  return true;
}

void ShardStream::OnWoken(bool) {
  Write();
  Leave();
}

void ShardStream::Write() {
  BlockHeader header;
  absl::string_view payload;
  // Whoever wakes the stream while writing_ is set relies on this thread to look once more.
  while (true) {
    {
      MutexLock lock(&mu_);
      if (!woken_) {
        writing_ = false;
        return;
      }
      woken_ = false;
    }
    if (owner_.Next(&header, &payload)) break;
  }
  outgoing_ =
      Frame(header, payload.empty() ? grpc::Slice()
                                    : grpc::Slice(payload.data(), payload.size(), grpc::Slice::STATIC_SLICE));
  ++under_way_;
  call_->Write(outgoing_, written_.Tag());
}

void ShardStream::OnWritten(bool ok) {
  {
    MutexLock lock(&mu_);
    writing_ = false;
  }
  if (ok) Send();
  Leave();
}

absl::Status ShardStream::ReadAnswer() {
  if (absl::Status status = frame_.Decode(incoming_); !status.ok()) return status;
  return owner_.OnAnswer(frame_.header(), frame_.payload());
}

void ShardStream::OnRead(bool ok) {
  absl::Status status;
  if (ok) {
    status = ReadAnswer();
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

void ShardStream::Leave() {
  if (--under_way_ == 0) OnDone();
}

void ShardStream::OnDone() {
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
