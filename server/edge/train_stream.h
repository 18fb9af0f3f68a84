// A worker's connection to a shard (ShardService.Train): it receives blocks and sends answers.
//
// At most kWindow requests and answers of a stream are in flight at a time: being applied, or waiting to be
// sent. Beyond that nothing is read until an answer has been sent. (Requests that wait at the gate do not
// count: there are at most two for each block.) So a worker that sends without reading costs the memory of a
// few blocks.
//
// A stream ends with a status that gives the reason when the peer breaks the protocol, when the worker is no
// longer a member, when it opens another stream, and when it sends a push or reads its answers too slowly
// (rate_floor.h).
//
// Payloads of a worker on the same machine stay in shared memory (Block.SHARE in proto/wire.proto): the
// stream copies them from the worker's memory, and keeps the buffers of its answers until the worker has
// counted them as read, at most kMaxLent.
//
// With a standby an answer is sent when the standby has the changes that it shows
// (server/shard/standby_log.h).
#ifndef CATCHMENT_SERVER_EDGE_TRAIN_STREAM_H_
#define CATCHMENT_SERVER_EDGE_TRAIN_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/shared_arena.h"
#include "common/net/grpc_frame.h"
#include "proto/wire.pb.h"
#include "server/edge/apply_pool.h"
#include "server/edge/deadline_timer.h"
#include "server/edge/rate_floor.h"
#include "server/edge/stream_call.h"
#include "server/edge/stream_table.h"
#include "server/shard/ring.h"
#include "server/shard/shard.h"
#include "server/shard/standby_log.h"

namespace catchment {

using TrainCall = StreamCall<grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>>;

// Threads: its queue's, the apply pool's and the sweeper's; safe.
class TrainStream final : public StreamOwner,
                          public AnswerSink,
                          public ApplyPool::Client,
                          public ServedStream,
                          public std::enable_shared_from_this<TrainStream> {
 public:
  // Shared by all streams of a service, and outlives them.
  struct Context {
    Shard* shard = nullptr;
    ApplyPool* appliers = nullptr;
    StreamTable* streams = nullptr;
    RateFloor floor{0, 0};
    SteadyClock clock = {};          // of requests
    StandbyLog* log = nullptr;       // null: the shard has no standby
    DeadlineTimer* timer = nullptr;  // null: no update is due at a time
    SharedArena* arena = nullptr;    // of the shard's buffers; null: payloads are always in the messages
    int64_t most_offered = 0;        // values for which a worker may have reserved its memory
  };

  // `call` is one whose Hello was accepted. The stream lives until the call ends, and as long as the shard
  // keeps it in order to answer.
  TrainStream(TrainCall* call, const Context* context, const v1::Hello& hello);
  void Start(const v1::Hello& hello);

  void Deliver(Answer answer) override;
  bool CanSendAgain() const override { return true; }
  void Apply(Request request) override;
  void Sweep(double now) override;
  void Replace() override;

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

  // Offers shared memory to a worker that has offered some and is on this machine.
  void OfferMemory(const v1::SharedMemory& of_worker);
  // Reads the message that has arrived. Returns true if it is a request.
  absl::StatusOr<bool> ReadMessage(Request* request);
  absl::Status ReadPayload(const BlockHeader& header, Contribution* contribution);
  absl::Status StartSharing(uint64_t counters);
  // Passes the request to the shard. In the trace, a request whose answer is not due yet waits at the gate
  // until Deliver.
  absl::Status Handle(Request request, std::vector<Answer>* answers);
  void ReadNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `shared_bytes`: of a payload that is not in the message.
  void Write(grpc::ByteBuffer frame, uint64_t shared_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteWritten() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Replaces the answer's payload by its place in shared memory, if the worker can read it there.
  void ShareMemory(Answer* answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops the buffers that the worker has read.
  void ReclaimLent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns true if the next answer must wait for the standby, and sends it later.
  bool MustWait() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckRates(double now, uint64_t push) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the call with `status`, and drops answers that are not yet being sent.
  void EndStream(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishWhenIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string name() const;

  const Context& context_;
  Shard& shard_;
  const uint32_t worker_;
  const uint64_t incarnation_;
  std::shared_ptr<TrainStream> self_;           // until OnDone
  uint64_t number_ = 0;                         // in the table, from Start on
  std::unique_ptr<MappedArena> worker_memory_;  // from Start on; null: none is shared

  // Used by one read at a time.
  grpc::ByteBuffer incoming_;
  ReceivedFrame frame_;

  Mutex mu_;
  TrainCall* call_ ABSL_GUARDED_BY(mu_);  // null once it has ended
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  size_t applying_ ABSL_GUARDED_BY(mu_) = 0;   // requests
  Ring<Answer> answers_ ABSL_GUARDED_BY(mu_);  // that wait to be sent
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mu_);
  double outgoing_made_at_ ABSL_GUARDED_BY(mu_) = 0;             // the answer that is being sent; 0: a call
  std::map<uint32_t, double> waits_since_ ABSL_GUARDED_BY(mu_);  // by block, with a trace
  std::string offer_ ABSL_GUARDED_BY(mu_);                       // the SHARE to send; empty: none
  std::optional<uint64_t> counters_ ABSL_GUARDED_BY(mu_);        // in worker_memory_, after its SHARE
  Ring<BufferPtr> lent_ ABSL_GUARDED_BY(mu_);                    // payloads that the worker may be reading
  uint64_t answers_read_ ABSL_GUARDED_BY(mu_) = 0;               // those before lent_
  uint64_t outgoing_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of outgoing_, with a payload that is shared
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool waits_for_standby_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;        // the call: gRPC permits it once
  bool closed_by_peer_ ABSL_GUARDED_BY(mu_) = false;  // or the connection has broken
  absl::Status status_ ABSL_GUARDED_BY(mu_);          // the final status
  double cancel_at_ ABSL_GUARDED_BY(mu_) = 0;         // if the peer does not read the status; 0: not set

  uint64_t bytes_received_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t bytes_sent_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t times_drained_ ABSL_GUARDED_BY(mu_) = 0;  // of answers
  RateFloor receiving_ ABSL_GUARDED_BY(mu_);
  RateFloor sending_ ABSL_GUARDED_BY(mu_);
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_TRAIN_STREAM_H_
