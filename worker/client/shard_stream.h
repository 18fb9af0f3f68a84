// A worker's end of one ShardService.Train stream.
#ifndef CATCHMENT_WORKER_CLIENT_SHARD_STREAM_H_
#define CATCHMENT_WORKER_CLIENT_SHARD_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/completion.h"
#include "common/mutex.h"
#include "common/wire/grpc_frame.h"
#include "proto/wire.pb.h"

namespace catchment {

// One write is under way at a time, and what goes next is asked for when it begins: nothing is queued, and
// nothing of ours is allocated for a block. Whoever still has gradients to compute leaves the writing to the
// queue's thread (Wake); whoever would only wait for the answers writes at once (Send).
//
// Threads: Wake, Send and Cancel from any; the owner is called on the queue's thread and by Send.
class ShardStream final {
 public:
  // Whose blocks the stream carries. Calls of Next come one at a time, answers too.
  class Owner {
   public:
    virtual ~Owner() = default;
    // The block to send now; false: none. The payload is not copied: its memory stays as it is until the
    // block is answered or the stream has closed.
    virtual bool Next(BlockHeader* header, absl::string_view* payload) = 0;
    // An error ends the stream with it.
    virtual absl::Status OnAnswer(const BlockHeader& header, const PayloadView& payload) = 0;
    // Once, last of all; the stream may be destroyed after it, not in it.
    virtual void OnClosed(const absl::Status& status) = 0;
  };

  // `queue` (of Completions) and `owner` outlive the stream.
  ShardStream(const std::shared_ptr<grpc::Channel>& channel, grpc::CompletionQueue* queue,
              const v1::Hello& hello, Owner* owner);
  // Ends the stream and waits for the end.
  ~ShardStream();

  // Says that there may be a block to send. The queue's thread sends it.
  void Wake();
  // The same, but sends it on this thread, which saves waking the other: a memory copy of the block.
  void Send();
  void Cancel();

 private:
  void OnRead(bool ok);
  void OnWoken(bool ok);
  // Of a block, and of what opens the call.
  void OnWritten(bool ok);
  void OnFinished(bool ok) { Leave(); }
  absl::Status ReadAnswer();
  // Returns true, and has set writing_, where the caller is to begin a write.
  bool BeginToWrite();
  // For whoever has set writing_.
  void Write();
  void Leave();
  void OnDone();

  grpc::CompletionQueue* const queue_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  const std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  Owner& owner_;
  MemberCompletion<ShardStream> read_{this, &ShardStream::OnRead};
  MemberCompletion<ShardStream> written_{this, &ShardStream::OnWritten};
  MemberCompletion<ShardStream> finished_{this, &ShardStream::OnFinished};
  MemberCompletion<ShardStream> woken_up_{this, &ShardStream::OnWoken};
  grpc::Alarm to_queue_;           // brings woken_up_ to the queue's thread; set by whoever has set writing_
  std::atomic<int> under_way_{0};  // operations; Finish from the beginning
  grpc::Status status_;            // what Finish gives

  // Of the queue's thread.
  grpc::ByteBuffer incoming_;
  ReceivedFrame frame_;

  grpc::ByteBuffer outgoing_;  // of whoever has set writing_

  Mutex mu_;
  CondVar changed_;
  bool writing_ ABSL_GUARDED_BY(mu_) = true;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;  // while writing_ was set
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mu_);  // of the owner
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_CLIENT_SHARD_STREAM_H_
