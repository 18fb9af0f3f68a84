// One server's part of the weights, and all operations on it.
//
// A request is one block of a worker's push, pull or exchange (proto/wire.proto, Block). The shard checks it,
// asks the gate whether an update can be made of the contributions that have arrived, lets the rule make it,
// and returns the answers, which the caller delivers after the call. Waiting requests are stored and use no
// thread. Contributions that were answered before they are applied are in no checkpoint.
//
// Locks: every block has its own, held while an update is applied to it. A reader-writer lock over the
// rosters is held for reading by requests, and for writing while rosters change or a snapshot begins. Order:
// snapshots, rosters, block, ledger. Threads: safe. No clock, no I/O, no randomness: initial weights and the
// time are arguments, and snapshots are passed to a function. Errors: InvalidArgument for a request that
// breaks the protocol, FailedPrecondition for one of a worker that is no member; neither changes anything.
#ifndef CATCHMENT_SERVER_SHARD_SHARD_H_
#define CATCHMENT_SERVER_SHARD_SHARD_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/codec/codec.h"
#include "common/mutex.h"
#include "common/parameter_layout.h"
#include "proto/checkpoint.pb.h"
#include "proto/wire.pb.h"
#include "server/shard/buffer_pool.h"
#include "server/shard/gap_sample.h"
#include "server/shard/gate.h"
#include "server/shard/push_ledger.h"
#include "server/shard/request.h"
#include "server/shard/rule.h"

namespace catchment {

// Delivers each answer over its connection.
void Deliver(std::vector<Answer>* answers);

// A copy of a shard at one moment.
struct ShardSnapshot {
  v1::ShardState state;
  std::vector<float> weights;              // empty: no values are kept
  std::vector<std::vector<float>> states;  // the rule's
  std::vector<std::string> state_names;    // one for each state
};

class Shard;

// A snapshot in progress, made by copy on write: at one moment the shard's state is recorded and all blocks
// are marked; a block's values are copied by Finish, or before that by the first update that reaches the
// block. So a request waits for the copy of one block at most, and the snapshot still has the values of that
// moment.
//
// Threads: one at a time; updates continue in parallel. Destroyed before its shard.
class PendingSnapshot {
 public:
  // Makes a snapshot that is already complete.
  explicit PendingSnapshot(ShardSnapshot complete) : snapshot_(std::move(complete)) {}
  // Cancels the copies that have not been made, and returns the memory to the shard, which must outlive the
  // snapshot, for its next checkpoint.
  ~PendingSnapshot();
  PendingSnapshot(const PendingSnapshot&) = delete;
  PendingSnapshot& operator=(const PendingSnapshot&) = delete;

  // Sets the run of the job to which the snapshot belongs.
  void set_run_id(uint64_t run_id) { snapshot_.state.set_run_id(run_id); }
  // Copies the blocks that no update has copied, each under its lock. Returns the complete snapshot.
  const ShardSnapshot& Finish();

 private:
  friend class Shard;
  PendingSnapshot(const Shard* shard, ShardSnapshot memory) : shard_(shard), snapshot_(std::move(memory)) {}

  const Shard* const shard_ = nullptr;  // null: it is complete
  bool finished_ = false;
  ShardSnapshot snapshot_;  // each block's values are guarded by the block's lock until it is finished
};

class Shard {
 public:
  // Receives every snapshot that is due, in ascending order of numbers, on the thread of the request that
  // reached its version, before that request is answered.
  using SnapshotSink = std::function<void(std::unique_ptr<PendingSnapshot>)>;

  // The initial contents of a shard.
  struct Contents {
    std::vector<float> weights;
    std::vector<std::vector<float>> states;  // none: zeros
    std::vector<v1::BlockState> blocks;      // none: version 0
    uint64_t checkpoint = 0;                 // the source; 0: none
  };

  // `job` is complete and valid. `layout` outlives the shard. With `keeps_values` the shard immediately
  // allocates the memory of one snapshot for the sink; without, those snapshots hold no values and cost no
  // copy.
  Shard(const v1::Job& job, const ParameterLayout& layout, int index, Contents contents,
        SnapshotSink snapshot_sink, bool keeps_values = true);
  ~Shard();

  // Decodes a payload: sets `payload` and `finite` of a request that has its header, in one pass over memory.
  // Errors: InvalidArgument for bytes that are no payload of the block in the job's codec.
  absl::Status ReadPayload(const PayloadView& bytes, Request* request);

  // Handles a request, and appends all answers that are due now, also those to other requests, to `answers`.
  // After every worker's first push only `answers` allocates memory, when it grows.
  absl::Status Handle(Request request, std::vector<Answer>* answers);

  // Sets the rosters, the announced checkpoint, the budget and the learning rate's factor; may release
  // waiting requests. Drops contributions in groups from workers that are no longer members; the master
  // assigns their samples again. `now`: as in a request.
  void SetRosters(const v1::ShardCommand& command, double now, std::vector<Answer>* answers);

  // Begins a snapshot with this number for the sink, unless there was one with it or a higher number, or a
  // weight is a NaN or an infinity.
  void Checkpoint(uint64_t number);

  // Returns a copy of the shard at one moment, made on the caller's thread block by block.
  ShardSnapshot Snapshot() const;
  // Returns only the weights, for an evaluator.
  std::vector<float> Weights() const;

  // Returns the shard's report; without `statistics` it omits those of workers, whose size grows with their
  // number.
  v1::ShardReport Report(bool statistics = true) const;
  // Records that a worker's connection is open, until Disconnected. `by_peer`: the worker closed it, or it
  // broke. A worker whose last connection ended in this way is reported until it opens another.
  void Connected(uint32_t worker, uint64_t incarnation);
  void Disconnected(uint32_t worker, uint64_t incarnation, bool by_peer);

  // Returns the number of the worker's push of which some blocks, but not all, have arrived; 0: none.
  uint64_t PushUnderWay(uint32_t worker, uint64_t incarnation) const;
  // Returns the payload bytes received and sent since the start.
  uint64_t bytes_moved() const { return bytes_pushed_ + bytes_pulled_; }
  // Returns the shard's version: the mean over its blocks, rounded down.
  uint64_t version() const { return total_updates_.load() / blocks_.size(); }
  bool IsMember(uint32_t worker, uint64_t incarnation) const;

  int index() const { return index_; }
  Range block_range(int block) const { return layout_.block(index_, block); }
  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  // The buffers of all payloads, received and sent.
  BufferPool* pool() { return &pool_; }

 private:
  struct BlockSlot;
  struct WorkerSlot;
  struct Contribution;
  // The weights of an answer; null: none.
  struct Payload {
    BufferPtr bytes;
    float scale = 1;
    BufferPtr sample;  // of the same center
  };
  // The effects of a call after its locks are released.
  struct Effects {
    std::vector<Answer>* answers;
    double now;                   // seconds
    uint64_t due_checkpoint = 0;  // number; 0: none
  };

  absl::Status CheckBlock(uint32_t block) const;
  absl::Status Check(const Request& request) const;
  absl::StatusOr<WorkerSlot*> FindWorker(const Request& request) const ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  absl::Status HandleLocked(Request* request, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  void HandlePull(BlockSlot* slot, Request request, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  absl::Status HandlePush(BlockSlot* slot, WorkerSlot* worker, Request request, Effects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Looks a push up in the worker's ledger, and counts duplicates.
  static absl::StatusOr<PushLedger::Seen> Look(const BlockHeader& header, WorkerSlot* worker);
  void HandleDuplicate(BlockSlot* slot, Request request, Effects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  bool IsLate(const BlockSlot& slot, const Request& request) const ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Rejects a contribution, which will be in no update.
  void Dismiss(BlockSlot* slot, WorkerSlot* worker, Request request, v1::Block::Fate fate, Effects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Answers a contribution before it is in an update.
  void Accept(BlockSlot* slot, WorkerSlot* worker, Request request, Effects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Makes every update of the block's waiting contributions that the gate allows.
  void Advance(BlockSlot* slot, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  void AdvanceGroup(BlockSlot* slot, uint32_t group, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  void AdvanceQueue(BlockSlot* slot, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Makes one update of the contributions that the slot has selected for it.
  void Update(BlockSlot* slot, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Applies the update; returns the weights after it if a contribution asks for them.
  Payload Apply(BlockSlot* slot, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Counts the outcome of a contribution.
  void Settle(const Contribution& contribution) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Holds the answer to a contribution until ReleaseHeld finds that its worker may continue.
  void Hold(BlockSlot* slot, Contribution contribution) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Answers the held contributions whose workers may continue. `weights`: the current ones, or none.
  void ReleaseHeld(BlockSlot* slot, Payload weights, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  void ReleasePulls(BlockSlot* slot, Payload weights, Effects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Answers a contribution without an update: it was already applied, will be applied later, or is too late.
  void AnswerOnly(BlockSlot* slot, Request request, v1::Block::Fate fate, Effects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Appends an answer. `version`: of the block.
  void Emit(Request request, v1::Block::Fate fate, uint64_t staleness, Payload payload, uint64_t version,
            Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Returns the lag since the worker was sent the weights that it used; none if this shard has sent it none.
  std::optional<Lag> LagOf(const BlockSlot& slot, const Request& request, double now) const;
  BufferPtr CopyWeights(const BlockSlot& slot);
  BufferPtr TakeSample(const BlockSlot& slot);
  // Encodes the weights in the job's codec.
  Payload EncodeWeights(const BlockSlot& slot);
  Rule::Center CenterOf(const BlockSlot& slot) const;
  void SetVersion(BlockSlot* slot, uint64_t version, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);

  // Returns memory for the values of a snapshot, with all of its pages touched.
  ShardSnapshot Allocate(bool with_states) const;
  // The same for the sink, reusing the memory that the last snapshot has returned.
  ShardSnapshot TakeMemory();
  // Marks all blocks to be copied into `memory`. A snapshot without values is immediately complete.
  std::unique_ptr<PendingSnapshot> Begin(ShardSnapshot memory) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(roster_mu_);
  // Fills in everything except values.
  void FillState(uint64_t number, v1::ShardState* state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(roster_mu_);
  // Returns the mark of the worker with this index, with the caller holding the lock of its ledger.
  v1::PushMark MarkOf(uint32_t index, const PushLedger& ledger) const;
  // Copies a block for the snapshots that have marked it, before an update writes to it.
  void CopyMarked(BlockSlot* slot) const;
  void CopyBlock(const BlockSlot& slot, ShardSnapshot* to) const;
  // Removes the marks of a snapshot; with `copy` the marked blocks are copied first.
  void Unmark(PendingSnapshot* pending, bool copy) const;
  void GiveBack(ShardSnapshot memory) const;
  friend class PendingSnapshot;

  const v1::Job job_;
  const ParameterLayout& layout_;
  const int index_;
  const std::unique_ptr<Rule> rule_;
  const Codec push_;
  const Codec pull_;
  const GapSample gap_sample_;
  const SnapshotSink snapshot_sink_;
  const bool keeps_values_;
  BufferPool pool_;

  Mutex snapshot_mu_;  // of one snapshot after the other
  mutable SharedMutex roster_mu_;
  Gate gate_ ABSL_GUARDED_BY(roster_mu_);
  uint64_t total_samples_ ABSL_GUARDED_BY(roster_mu_) = 0;
  double plateau_factor_ ABSL_GUARDED_BY(roster_mu_) = 1;  // of the learning rate
  std::map<uint32_t, std::unique_ptr<WorkerSlot>> workers_ ABSL_GUARDED_BY(roster_mu_);
  uint64_t last_checkpoint_ ABSL_GUARDED_BY(roster_mu_) = 0;
  // By the master: the number of the next checkpoint, and the version that it is taken at.
  uint64_t announced_checkpoint_ ABSL_GUARDED_BY(roster_mu_) = 0;
  uint64_t announced_version_ ABSL_GUARDED_BY(roster_mu_) = 0;

  mutable Mutex spare_mu_;
  mutable std::optional<ShardSnapshot> spare_ ABSL_GUARDED_BY(spare_mu_);  // memory for the next checkpoint

  // Each block's part is guarded by its slot's lock.
  std::vector<float> weights_;
  std::vector<std::vector<float>> states_;
  std::vector<std::unique_ptr<BlockSlot>> blocks_;

  std::atomic<uint64_t> total_updates_{0};  // over all blocks
  // Of a block, after its first update with a weight that is not finite; 0: there was none.
  std::atomic<uint64_t> non_finite_version_{0};
  std::atomic<uint64_t> bytes_pushed_{0};
  std::atomic<uint64_t> bytes_pulled_{0};
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_SHARD_H_
