// Sends a shard's image and changes to its standby (proto/standby.proto).
//
// The link connects again whenever the connection breaks, and then begins with an image, because a standby
// that was started again has nothing. Until the standby has acknowledged the image, no answer leaves the
// server.
#ifndef CATCHMENT_SERVER_EDGE_STANDBY_LINK_H_
#define CATCHMENT_SERVER_EDGE_STANDBY_LINK_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/base/shared_arena.h"
#include "common/job/parameter_layout.h"
#include "common/net/completion.h"
#include "common/net/message_stream.h"
#include "proto/standby.pb.h"
#include "proto/wire.pb.h"
#include "server/shard/shard.h"
#include "server/shard/standby_log.h"

namespace catchment {

// A standby on the same machine keeps no vectors of its own beside the image: its copy refers to the shard's
// buffers, which survive this process because the standby has mapped them.
//
// Threads: safe.
class StandbyLink final : private MessageStream::Owner {
 public:
  // Called once, on the link's thread, when another process has taken the shard over: this one must end.
  using OnReplaced = std::function<void(const absl::Status&)>;

  // Returns threads that outlive the link. Those of a listener are best: the thread that makes an update
  // sends it, and an acknowledgement arrives on a thread that sends answers.
  using Threads = std::function<ConnectionThreads()>;

  // All pointers outlive the link. `arena`: has the shard's buffers, which a standby on this machine reads
  // there; null: all vectors are sent. `threads` is called after SetStandby.
  StandbyLink(Shard* shard, const ParameterLayout* layout, StandbyLog* log, const SharedArena* arena,
              Threads threads, std::shared_ptr<grpc::ChannelCredentials> credentials, OnReplaced on_replaced);
  ~StandbyLink() override;

  // Sets the standby, as the master has named it. Has no effect if nothing has changed.
  void SetStandby(const v1::ShardCommand::Standby& standby, uint64_t run_id);
  // Returns the epoch of this process; 0: the master has not named it yet.
  uint64_t epoch() const;
  // Begins with this epoch, which the master has assigned to a shard that is restored.
  void SetEpoch(uint64_t epoch);

 private:
  bool Next(grpc::ByteBuffer* message) override;
  absl::Status OnMessage(const grpc::ByteBuffer& message) override;
  void OnClosed(const absl::Status& status) override;

  // By offset in the arena; more than once if the copy has it more than once.
  using LentVectors = std::unordered_multimap<uint64_t, BufferPtr>;

  void Run();
  // Opens a stream to the standby, and returns the status with which it has ended.
  absl::Status Stream(const std::string& address, const v1::StandbyHello& hello);
  // Waits until the standby has admitted the stream. Returns false if the stream has ended before.
  bool AwaitAdmission();
  void AddVector(const grpc::Slice& values);
  void AddPart(const v1::StandbyPart& part);
  // Adds the next block of the image, or its end.
  void AddOfImage();
  void AddChange(StandbyLog::Change change);
  // Adds the change with the places of its vectors, which are kept until the standby returns them. Returns
  // false, and adds nothing, if the standby cannot read all of them.
  bool ShareVectors(StandbyLog::Change* change);
  // Adds the master's state, as change `number`.
  void AddState(bool whole, uint64_t number);

  Shard& shard_;
  const ParameterLayout& layout_;
  StandbyLog& log_;
  const SharedArena* const arena_;
  const Threads threads_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const OnReplaced on_replaced_;

  // Used by the link's thread until `prepared_` is set, and then by Next.
  std::optional<Shard::Image> image_;  // that is being sent
  size_t next_block_ = 0;
  std::deque<grpc::ByteBuffer> messages_;  // to send first

  mutable Mutex mu_;
  CondVar changed_;
  v1::ShardCommand::Standby standby_ ABSL_GUARDED_BY(mu_);
  uint64_t run_id_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;
  bool admitted_ ABSL_GUARDED_BY(mu_) = false;
  bool acknowledged_ ABSL_GUARDED_BY(mu_) = false;  // the image of this stream
  bool prepared_ ABSL_GUARDED_BY(mu_) = false;      // the beginning of the image
  bool shares_ ABSL_GUARDED_BY(mu_) = false;        // the standby reads the arena
  // The vectors in shared memory that are part of the standby's copy: those of this stream, and of earlier
  // ones until the image of this stream is acknowledged.
  LentVectors lent_ ABSL_GUARDED_BY(mu_), lent_before_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<MessageStream>
      stream_;  // used by the link's thread, and by the log's sender while it is set
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_STANDBY_LINK_H_
