// One server, as a ParameterClient sees it: the stream to the server, the codec of its blocks, and the place
// of each block in the current operation.
//
// Threads: one caller at a time; the stream calls on the threads of the connections and in Send. All channels
// of a client share its lock, which guards the schedule and the state of the stream. Payloads are encoded and
// decoded without it.
//
// With a server on this machine payloads stay in shared memory (Block.SHARE in proto/wire.proto): the server
// reads a push where the operation's input is, if that is in Options.arena, and an answer is decoded from the
// server's memory. The messages are then in pipes (common/net/message_pipe.h).
#ifndef CATCHMENT_WORKER_CLIENT_SERVER_CHANNEL_H_
#define CATCHMENT_WORKER_CLIENT_SERVER_CHANNEL_H_

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/growing_pause.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/base/shared_arena.h"
#include "common/codec/codec.h"
#include "common/codec/push_encoder.h"
#include "common/job/parameter_layout.h"
#include "common/trace/recorder.h"
#include "common/wire/protocol.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "worker/client/block_schedule.h"
#include "worker/client/shard_stream.h"
#include "worker/parameters.h"

namespace catchment {

class ServerChannel final : public ShardStream::Owner {
 public:
  // The client of the channel. The channel calls it with the lock held.
  class Owner {
   public:
    virtual ~Owner() = default;
    // A block of the fragment was taken from the schedule to be sent.
    virtual void OnTaken(uint32_t fragment) = 0;
    // A block with a payload of `bytes` is being sent.
    virtual void OnSent(size_t bytes) = 0;
    // `block` of the fragment was answered with a payload of `bytes`.
    virtual void OnAnswered(uint32_t fragment, Range block, const Parameters::Outcome& outcome,
                            size_t bytes) = 0;
    virtual void OnStreamClosed() = 0;
  };

  // The operation of a fragment that all channels of a client execute. It changes only while no stream awaits
  // an answer to it.
  struct Current {
    Parameters::Operation operation;
    uint64_t sequence = 0;  // of the last push or exchange
  };

  struct Options {
    std::string address;  // HOST:PORT
    std::shared_ptr<grpc::ChannelCredentials> credentials;
    v1::Hello hello;
    v1::Compression compression;
    double give_up_seconds = 60;   // for a server that does not answer
    SharedArena* arena = nullptr;  // outlives the channel; null: no memory is shared
  };

  // All pointers outlive the channel. `current`: by fragment. `mu` is the lock of the owner.
  ServerChannel(Options options, const ParameterLayout* layout, const std::vector<Current>* current,
                const ConnectionThreads& threads, Mutex* mu, Owner* owner);

  ~ServerChannel() override { Close(); }

  // Opens a new stream. The channel has none.
  void Open();
  // Afterwards the server does not use what it has not read of the operations' input.
  void Close();
  bool IsOpen() const { return stream_ != nullptr; }
  // Closes a broken stream. Returns the seconds after which it is to be opened again. Errors: that of a
  // stream which a retry cannot repair; Unavailable if no answer came for Options.give_up_seconds. `now`:
  // seconds.
  absl::StatusOr<double> CloseBroken(double now);
  // Reopens a stream at `now`, and resends the blocks that were not answered.
  void OpenAgain(double now);

  // Sends the ready blocks, on the thread of the connections.
  void Wake() { stream_->Wake(); }
  // The same, on this thread.
  void Send() { stream_->Send(); }

  Range range() const { return layout_.shard(index_); }
  // Empty for codecs without error feedback.
  absl::Span<float> residual() { return encoder_.residual(); }

  // All require the lock.
  BlockSchedule& schedule() { return schedule_; }
  // Returns the highest version of a block in an answer; 0: there was none.
  uint64_t highest_version() const { return highest_version_; }
  // Returns true if the server has called for a contribution computed with the fragment's blocks as last
  // pulled. Not to be called during an operation of the fragment.
  bool IsCalled(uint32_t fragment) const;
  bool SharesMemory() const { return sharing_ == kShared; }
  // Returns true if the stream closed while answers are missing. One that closes after its last answer is
  // opened again in the next operation.
  bool IsBroken() const { return closed_ && schedule_.unanswered() > 0; }

 private:
  // The last encoding of a block.
  struct Encoded {
    size_t payload;  // offset of its bytes in payloads_
    uint64_t sequence = 0;
    float scale = 1;
  };

  bool Next(BlockHeader* header, absl::string_view* payload) override;
  absl::Status OnAnswer(const BlockHeader& header, const PayloadView& payload) override;
  void OnClosed(const absl::Status& status) override;

  std::string name() const;
  uint32_t FragmentOf(uint32_t block) const { return layout_.FragmentsOfBlocks(index_)[block]; }
  const Current& CurrentOf(uint32_t block) const { return current_[FragmentOf(block)]; }
  BlockHeader HeaderOf(int block) const;
  // Returns a block's values as bytes, and sets their scale. They are the same whenever the block is sent
  // again.
  absl::string_view Encode(BlockHeader* header);
  // Writes the values of an answer to the output of the operation.
  absl::Status Decode(const BlockHeader& header, const PayloadView& payload);
  // Replaces a payload by its place in shared memory, if the server can read it there.
  void ShareMemory(absl::string_view* payload, BlockHeader* header);
  // Maps the memory that the server offers.
  absl::Status TakeOffer(const PayloadView& payload);
  absl::Status DecodeShared(const BlockHeader& header);
  absl::Status CheckAsked(const BlockHeader& header) const;
  void TakeCall(const BlockHeader& call);
  TraceBlock TracedBlock(const BlockHeader& header) const {
    return {options_.hello.worker(), header.block, header.sequence};
  }

  const Options options_;
  const int index_;
  const ParameterLayout& layout_;
  const std::vector<Current>& current_;
  const ConnectionThreads threads_;
  Mutex& mu_;
  Owner& owner_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<ShardStream> stream_;
  std::vector<uint64_t> versions_;  // of each block, as last pulled
  const Codec pull_;
  const std::string lane_;  // of the spans from a block to its answer

  // Two channels may send at the same time, so each has its own encoder. It is used by one thread at a time,
  // the one that writes to the stream. Without a codec there are no payloads.
  PushEncoder encoder_;
  std::vector<Encoded> encoded_;  // by block
  std::pmr::vector<char> payloads_;

  // Shared memory of the stream. The server's is used by the stream's thread for answers.
  std::unique_ptr<MappedArena> server_memory_;
  SharedCounters* counters_ = nullptr;  // in the arena; null: there is none
  uint64_t answers_read_ = 0;

  // Guarded by mu_.
  BlockSchedule schedule_;
  uint64_t highest_version_ = 0;
  std::map<uint32_t, uint64_t> calls_;  // the version of the last call of each block
  std::vector<double> sent_at_;         // by block, for the trace; 0: it was sent without one
  enum { kNotShared, kOffered, kShared } sharing_ = kNotShared;  // kOffered: SHARE is to be sent
  bool closed_ = true;
  absl::Status close_status_;
  // For the attempts to open the stream since its last answer.
  Patience patience_;
  GrowingPause pause_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_CLIENT_SERVER_CHANNEL_H_
