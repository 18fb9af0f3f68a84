// A worker's end of one ShardService.Train stream: blocks and their answers as messages of a stream
// (common/net/message_stream.h).
#ifndef CATCHMENT_WORKER_CLIENT_SHARD_STREAM_H_
#define CATCHMENT_WORKER_CLIENT_SHARD_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/net/grpc_frame.h"
#include "common/net/message_stream.h"
#include "proto/wire.pb.h"

namespace catchment {

// Threads: as with MessageStream.
class ShardStream final : private MessageStream::Owner {
 public:
  // The source of the blocks. Calls of Next come one at a time, and so do answers.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Sets the block to send now; false: there is none. The payload is not copied: its memory must not change
    // until the block is answered or the stream has closed.
    virtual bool Next(BlockHeader* header, absl::string_view* payload) = 0;
    // An error ends the stream with it.
    virtual absl::Status OnAnswer(const BlockHeader& header, const PayloadView& payload) = 0;
    // Called once, after all others. The stream may be destroyed after it, not in it.
    virtual void OnClosed(const absl::Status& status) = 0;
  };

  // `threads` and `owner` outlive the stream.
  ShardStream(const std::shared_ptr<grpc::Channel>& channel, const ConnectionThreads& threads,
              const v1::Hello& hello, Owner* owner);

  void Wake() { stream_.Wake(); }
  void Send() { stream_.Send(); }
  void Cancel() { stream_.Cancel(); }

 private:
  bool Next(grpc::ByteBuffer* message) override;
  absl::Status OnMessage(const grpc::ByteBuffer& message) override;
  void OnClosed(const absl::Status& status) override { owner_.OnClosed(status); }

  Owner& owner_;
  ReceivedFrame frame_;
  MessageStream stream_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_CLIENT_SHARD_STREAM_H_
