// One server's part of the weights, and all operations on it.
//
// A request is one block of a worker's push, pull or exchange (proto/wire.proto, Block). The shard checks it
// and passes it to its block (server/shard/block.h), which makes the updates that are due; the caller
// delivers the answers after the call. Waiting requests are stored and use no thread. Contributions that were
// answered before they are applied are in no checkpoint, but in the copy of a standby (standby_log.h).
//
// Locks: every block has its own, held while an update is applied to it. A reader-writer lock over the
// rosters is held for reading by requests, and for writing while rosters change or a snapshot begins. Order:
// snapshots, rosters, block, ledger. Threads: safe. No clock, no I/O, no randomness: initial weights and the
// time are arguments, and snapshots are passed to a function. Errors: InvalidArgument for a request that
// breaks the protocol, Aborted for one from a worker that is not a member; neither changes anything.
#ifndef CATCHMENT_SERVER_SHARD_SHARD_H_
#define CATCHMENT_SERVER_SHARD_SHARD_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/mutex.h"
#include "common/codec/codec.h"
#include "common/job/parameter_layout.h"
#include "proto/checkpoint.pb.h"
#include "proto/wire.pb.h"
#include "server/shard/block.h"
#include "server/shard/buffer_pool.h"
#include "server/shard/commanded_state.h"
#include "server/shard/request.h"
#include "server/shard/shard_contents.h"
#include "server/shard/shard_snapshot.h"
#include "server/shard/standby_log.h"

namespace catchment {

// Delivers each answer over its connection.
void Deliver(std::vector<Answer>* answers);

class Shard {
 public:
  // Receives every snapshot that is due, in ascending order of numbers, on the thread of the request that
  // reached its version, before that request is answered.
  using SnapshotSink = std::function<void(std::unique_ptr<PendingSnapshot>)>;

  using Contents = ShardContents;

  // `job` is complete and valid. `layout` outlives the shard. With `keeps_values` the shard immediately
  // allocates the memory of one snapshot for the sink; without, those snapshots hold no values and cost no
  // copy. `log` receives all changes, and outlives the shard; null: the shard has no standby.
  Shard(const v1::Job& job, const ParameterLayout& layout, int index, Contents contents,
        SnapshotSink snapshot_sink, bool keeps_values = true, StandbyLog* log = nullptr);
  ~Shard();

  // Decodes a payload: sets the values of a contribution that has its block, in one pass over memory.
  // `scale`: of the header. Errors: InvalidArgument for bytes that are not a payload of the block in the
  // job's codec.
  absl::Status ReadPayload(const PayloadView& bytes, float scale, Contribution* contribution);

  // Handles a request, and appends all answers that are due now, also those to other requests, to `answers`.
  // `now`: seconds, on any monotonic clock. After every worker's first push only `answers` allocates memory,
  // when it grows.
  absl::Status Handle(Request request, double now, std::vector<Answer>* answers);

  // Returns true if updates may be due at a time, with consistency.quorum.
  bool has_quorum() const { return context_.job.algorithm().consistency().has_quorum(); }
  // Returns the time at which Tick must be called unless a request or new rosters come first, on the clock of
  // Handle. Deadlines::kNever: there is none.
  double NextDeadline() { return context_.deadlines.Next(); }
  // Makes the updates whose deadlines have passed, and appends their answers to `answers`.
  void Tick(double now, std::vector<Answer>* answers);
  // Records the seconds from the update of an answer until it has been sent, for later deadlines.
  void CountAnswer(double seconds);

  // Sets the rosters, the announced checkpoint, the budget and the learning rate's factor; may release
  // waiting requests. Drops contributions in groups from workers that have left; the master
  // assigns their samples again. `now`: as in Handle.
  void SetRosters(const v1::ShardCommand& command, double now, std::vector<Answer>* answers);

  // Begins a snapshot with this number for the sink, unless there was one with it or a higher number, or a
  // weight is a NaN or an infinity.
  void Checkpoint(uint64_t number);

  // Returns a copy of the shard at one moment, made on the caller's thread block by block.
  ShardSnapshot Snapshot() const;
  // Returns only the weights, for a reader, or all of them copied.
  std::unique_ptr<PendingWeights> BeginWeights() const;
  std::vector<float> Weights() const;
  // Returns the weights of one block. Those of all blocks have the same version only if the shard makes no
  // updates.
  BufferPtr WeightsOfBlock(int block) const { return blocks_[block]->Weights(); }

  // An image of the shard for its standby. Blocks lack their values, which are in `values`.
  struct Image {
    v1::StandbyPart begin;
    std::vector<v1::StandbyPart> ledgers;
    std::vector<StandbyLog::Change> blocks;
    std::unique_ptr<PendingSnapshot> values;
    uint64_t number = 0;  // of the last change that it contains
  };
  // Opens the log, and begins an image of this moment: the log's later changes follow it.
  Image BeginImage();

  // Returns the shard's report; without `statistics` it omits those of workers, whose size grows with their
  // number.
  v1::ShardReport Report(bool statistics = true) const;
  // Records that a worker's connection is open, until Disconnected. `by_peer`: the worker closed it, or it
  // broke. A worker whose last connection ended in this way is reported until it opens another. `sink`
  // receives the calls of workers (consistency.quorum) as long as it exists; those of the updates in progress
  // are returned.
  std::vector<Answer> Connected(uint32_t worker, uint64_t incarnation,
                                const std::shared_ptr<AnswerSink>& sink = nullptr);
  void Disconnected(uint32_t worker, uint64_t incarnation, bool by_peer);

  // Returns the number of the worker's push of which some blocks, but not all, have arrived; 0: none.
  uint64_t PushUnderWay(uint32_t worker, uint64_t incarnation) const;
  // Returns the payload bytes received and sent since the start.
  uint64_t bytes_moved() const { return context_.bytes_pushed + context_.bytes_pulled; }
  // Returns the shard's version: the mean over its blocks, rounded down.
  uint64_t version() const { return context_.total_updates / blocks_.size(); }
  bool IsMember(uint32_t worker, uint64_t incarnation) const;
  // Returns the generation of the rosters; 0: there are none.
  uint64_t generation() const;

  int index() const { return index_; }
  Range block_range(int block) const { return layout_.block(index_, block); }
  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  // The buffers of all payloads, received and sent.
  BufferPool* pool() { return &context_.pool; }

 private:
  absl::Status CheckBlock(uint32_t block) const;
  absl::Status Check(const Request& request) const;
  absl::Status HandleLocked(Request request, BlockCall* call) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  absl::StatusOr<WorkerRecord*> FindMember(const Envelope& envelope) const
      ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Returns the record of a worker; null if it was never a member.
  WorkerRecord* FindWorker(uint32_t worker) const ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  void AddWorkers(const v1::Roster& roster) ABSL_EXCLUSIVE_LOCKS_REQUIRED(roster_mu_);

  // Returns memory for the values of a snapshot, with all of its pages touched.
  ShardSnapshot Allocate() const;
  // The same for the sink, reusing the memory that the last snapshot has returned.
  ShardSnapshot TakeMemory();
  // Appends the checkpoint that was taken to the log.
  void LogCheckpoint() ABSL_EXCLUSIVE_LOCKS_REQUIRED(roster_mu_);
  // Marks all blocks to be copied into `memory`. A snapshot without values is immediately complete.
  std::unique_ptr<PendingSnapshot> Begin(ShardSnapshot memory) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(roster_mu_);
  // Fills in everything except values.
  void FillState(uint64_t number, v1::ShardState* state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(roster_mu_);
  // Returns the mark of the worker with this index, with the caller holding the lock of its ledger.
  v1::PushMark MarkOf(uint32_t index, const PushLedger& ledger) const;
  // Removes the marks of a snapshot; with `copy` the marked blocks are copied first.
  void Unmark(PendingSnapshot* pending, bool copy) const;
  // Takes the memory of a snapshot for the next one.
  void Return(ShardSnapshot memory) const;
  friend class PendingSnapshot;
  friend class PendingWeights;

  const ParameterLayout& layout_;
  const int index_;
  const Codec push_;
  const SnapshotSink snapshot_sink_;
  const bool keeps_values_;
  BlockContext context_;
  std::vector<std::unique_ptr<Block>> blocks_;

  Mutex snapshot_mu_;  // held while one snapshot begins
  mutable SharedMutex roster_mu_;
  CommandedState commanded_ ABSL_GUARDED_BY(roster_mu_);
  uint64_t last_checkpoint_ ABSL_GUARDED_BY(roster_mu_) = 0;
  uint64_t last_checkpoint_updates_ ABSL_GUARDED_BY(roster_mu_) = 0;  // of all blocks, when it was taken

  mutable Mutex spare_mu_;
  mutable std::optional<ShardSnapshot> spare_ ABSL_GUARDED_BY(spare_mu_);  // memory for the next checkpoint
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_SHARD_H_
