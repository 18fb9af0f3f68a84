// Messages between two processes of one machine and user over a pair of pipes.
//
// A gRPC stream wakes several threads for a message, and sends packets for its flow control; a pipe wakes one
// thread. So two ends of a stream that share memory (common/base/shared_arena.h) move their messages to
// pipes. The stream remains: its end is theirs, and it has their permissions and its status.
//
// The server of the stream makes the pipes, and names them in the stream's initial metadata (Pipes in
// proto/wire.proto). The client opens them through /proc/PROCESS/fd, which the kernel allows only for the
// same user, and says so with an empty message on the stream, after which it sends everything through its
// pipe. From the arrival of the empty message on the server does the same.
//
// In a pipe a message is preceded by its size, 4 bytes, little-endian.
#ifndef CATCHMENT_COMMON_NET_MESSAGE_PIPE_H_
#define CATCHMENT_COMMON_NET_MESSAGE_PIPE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/net/completion.h"
#include "common/net/listen.h"
#include "common/net/pipe_thread.h"
#include "proto/wire.pb.h"

namespace catchment {

// The key of the initial metadata with a serialized Pipes.
inline constexpr char kPipesKey[] = "catchment-pipes-bin";

// One end of a pair of pipes. The operations are as those of a gRPC stream: one read and one write at a time,
// which complete on the thread of the pipes.
//
// Threads: safe.
class MessagePipe final : public std::enable_shared_from_this<MessagePipe> {
 public:
  // Makes the pipes, and sets what the other end needs to open them. `thread` outlives the object. Messages
  // of more than `most_bytes` are not received. Errors: ResourceExhausted if the process has used half of its
  // open files; those of the operating system.
  static absl::StatusOr<std::shared_ptr<MessagePipe>> Make(PipeThread* thread, uint32_t most_bytes,
                                                           v1::Pipes* offer);
  // Opens the pipes that another process has made. FailedPrecondition, with the reason, if it is not on this
  // machine or of this user.
  static absl::StatusOr<std::shared_ptr<MessagePipe>> Open(PipeThread* thread, uint32_t most_bytes,
                                                           const v1::Pipes& offer);

  // Begins to receive a message. `done` fails when the end is closed and what had arrived before is received,
  // and when the other end violates the protocol.
  void Read(grpc::ByteBuffer* message, Completion* done);
  // Sends a message. Returns true if it is in the pipe: `done` is not used then. Otherwise it follows when
  // the other end has made room, or fails when this one is closed.
  bool Write(const grpc::ByteBuffer& message, Completion* done);
  // Closes this end: operations in progress, and later ones, fail.
  void Close();
  // To be called once, when no operation is in progress or will be started; may be called by `done`.
  void Leave();

 private:
  friend class PipeThread;
  enum class Progress { kWaits, kMessage, kFailed };

  MessagePipe(PipeThread* thread, uint32_t most_bytes, Fd in, Fd out)
      : thread_(*thread), most_bytes_(most_bytes), in_(std::move(in)), out_(std::move(out)) {}

  // Called on the thread of the pipes, when bytes or room may be there, or when Nudge was called. OnReadable
  // receives one message, so that pipes take turns; it returns true if it is to be called again.
  bool OnReadable();
  void OnWritable();
  // Continues with the message that is arriving.
  Progress Receive();
  Progress ReceiveFrom(const char* bytes, size_t size, size_t* used);
  // Writes what is left of the message; returns false if the pipe is full.
  bool Flush();
  void Watch(int fd, PipeThread::Direction direction, bool watch, bool* watches)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WatchInput(bool watch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WatchOutput(bool watch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  PipeThread& thread_;
  const uint32_t most_bytes_;
  const Fd in_, out_;
  uint64_t id_ = 0;  // in the thread's table

  // Used by the thread of the pipes.
  std::string unread_;         // bytes from the pipe that are not in a message yet
  size_t unread_at_ = 0;       // where they begin
  grpc::Slice long_message_;   // that is arriving
  size_t long_received_ = 0;   // bytes of it; its size: all
  grpc::ByteBuffer received_;  // complete, until its read is
  size_t received_since_close_ = 0;

  // Used by the thread that writes.
  std::vector<grpc::Slice> slices_;
  uint32_t size_ = 0;   // of the message, little-endian
  size_t written_ = 0;  // bytes of size_ and slices_

  Mutex mu_;
  grpc::ByteBuffer* message_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the read in progress
  Completion* reading_ ABSL_GUARDED_BY(mu_) = nullptr;
  Completion* writing_ ABSL_GUARDED_BY(mu_) = nullptr;  // waits for room
  bool receiving_ ABSL_GUARDED_BY(mu_) = false;         // OnReadable runs or will run
  bool watches_input_ ABSL_GUARDED_BY(mu_) = false;
  bool watches_output_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_NET_MESSAGE_PIPE_H_
