// The client's end of a bidirectional gRPC stream of encoded messages, on a completion queue.
#ifndef CATCHMENT_COMMON_NET_MESSAGE_STREAM_H_
#define CATCHMENT_COMMON_NET_MESSAGE_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/net/completion.h"
#include "common/net/message_pipe.h"

namespace catchment {

// If the server offers pipes (message_pipe.h), the messages move there.
//
// One write is in progress at a time, and the owner is asked for the next message when it begins: nothing is
// queued, and nothing is allocated per message. A caller that has other work leaves the writing to the
// queue's thread (Wake); a caller that would only wait for the answers writes at once (Send).
//
// Threads: Wake, Send and Cancel from any; the owner is called on the queue's thread, on that of the pipes,
// and by Send.
class MessageStream final {
 public:
  // Produces and consumes the messages. Calls of Next come one at a time, and so do received messages.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Sets the message to send now; false: there is none.
    virtual bool Next(grpc::ByteBuffer* message) = 0;
    // An error ends the stream with it.
    virtual absl::Status OnMessage(const grpc::ByteBuffer& message) = 0;
    // Called once, after all others. The stream may be destroyed after it, not in it.
    virtual void OnClosed(const absl::Status& status) = 0;
  };

  struct Call {
    std::string method;  // "/package.Service/Method"
    // One entry of metadata.
    std::string key;
    std::string value;
  };

  // `threads` and `owner` outlive the stream.
  MessageStream(const std::shared_ptr<grpc::Channel>& channel, const ConnectionThreads& threads,
                const Call& call, Owner* owner);
  // Ends the stream and waits for the end.
  ~MessageStream();

  // Notes that there may be a message to send. The queue's thread sends it.
  void Wake();
  // Does the same, but sends it on this thread, which saves waking the other one.
  void Send();
  void Cancel();

 private:
  void OnRead(bool ok);
  void OnPipedRead(bool ok);
  // Passes a message to the owner. An error ends the stream.
  absl::Status Receive(const grpc::ByteBuffer& message);
  MessagePipe* pipe();
  // Opens the pipes if the server offers some.
  void LookForPipes();
  void OnWoken(bool ok);
  // Called after a write, and when the call has been opened.
  void OnWritten(bool ok);
  void OnFinished(bool ok) { Leave(); }
  // Returns true, and has set writing_, if the caller is to begin a write.
  bool BeginToWrite();
  // For the thread that has set writing_.
  void Write();
  // Sets outgoing_ to the next message; false: there is none.
  bool Prepare();
  // Writes outgoing_. Returns true if it was sent at once; otherwise OnWritten follows.
  bool Transmit();
  void Leave();
  void OnDone();

  const ConnectionThreads threads_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  const std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  Owner& owner_;
  MemberCompletion<MessageStream> read_{this, &MessageStream::OnRead};
  MemberCompletion<MessageStream> piped_read_{this, &MessageStream::OnPipedRead};
  MemberCompletion<MessageStream> written_{this, &MessageStream::OnWritten};
  MemberCompletion<MessageStream> finished_{this, &MessageStream::OnFinished};
  MemberCompletion<MessageStream> woken_up_{this, &MessageStream::OnWoken};
  grpc::Alarm to_queue_;  // brings woken_up_ to the queue's thread; set by the thread that has set writing_
  std::atomic<int> under_way_{0};  // operations; Finish from the beginning
  grpc::Status status_;            // the result of Finish

  grpc::ByteBuffer incoming_;        // used by the queue's thread
  grpc::ByteBuffer piped_incoming_;  // used by the thread of the pipes
  bool has_looked_for_pipes_ = false;
  Mutex receiving_;  // the owner receives one message at a time
  // Used by the thread that has set writing_.
  grpc::ByteBuffer outgoing_;
  enum { kOnStream, kMoving, kInPipe } writes_ = kOnStream;  // kMoving: the server is told of it

  Mutex mu_;
  CondVar changed_;
  bool writing_ ABSL_GUARDED_BY(mu_) = true;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;                 // while writing_ was set
  std::shared_ptr<MessagePipe> pipe_ ABSL_GUARDED_BY(mu_);  // null: there is none
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mu_);  // of the owner
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_NET_MESSAGE_STREAM_H_
