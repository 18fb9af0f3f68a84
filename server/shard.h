// One server's part of the weights, and all that happens to it.
//
// A request is one block of a worker's push, pull or exchange (proto/wire.proto, Block). The shard checks it,
// asks the gate whether an update can be made of what is in, has the rule make it, and says whom to answer
// what: the caller delivers the answers after the call. Requests that wait are kept, and cost no thread.
// Contributions that were answered before they are applied are in no checkpoint.
//
// Locks: every block has its own, held while an update is applied to it. A reader-writer lock over the
// rosters is held for reading by requests, and for writing while rosters change or a snapshot begins. Order:
// snapshots, rosters, block, ledger. Threads: safe. No clock, no I/O, no randomness: initial weights and the
// time come in, snapshots go out to a function. Errors: a request that breaks the
// protocol gets InvalidArgument, one of a worker that is no member FailedPrecondition; nothing has changed
// then.
#ifndef CATCHMENT_SERVER_SHARD_H_
#define CATCHMENT_SERVER_SHARD_H_

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
#include "server/buffer_pool.h"
#include "server/gap_sample.h"
#include "server/gate.h"
#include "server/push_ledger.h"
#include "server/request.h"
#include "server/rules/rule.h"

namespace catchment {

// Delivers answers, each over the connection that it belongs to.
void Deliver(std::vector<Answer>* answers);

// A copy of a shard as it was at one moment.
struct ShardSnapshot {
  v1::ShardState state;
  std::vector<float> weights;              // empty: no values are kept
  std::vector<std::vector<float>> states;  // of the rule
  std::vector<std::string> state_names;    // of each of them
};

class Shard;

// A snapshot that is being made, copy on write: the shard's state is noted at one moment, in which all blocks
// are marked; a block's values are copied by Finish, or before that by the first update that reaches the
// block. So no request waits for more than the copy of one block, and the snapshot is of that moment all the
// same.
//
// Threads: one at a time; updates go on meanwhile. Destroyed before its shard.
class PendingSnapshot {
 public:
  // One that is complete from the start.
  explicit PendingSnapshot(ShardSnapshot complete) : snapshot_(std::move(complete)) {}
  // The blocks that are not copied yet are not copied any more; the memory goes back to the shard, which must
  // outlive the snapshot, for its next checkpoint.
  ~PendingSnapshot();
  PendingSnapshot(const PendingSnapshot&) = delete;
  PendingSnapshot& operator=(const PendingSnapshot&) = delete;

  // Notes whose snapshot it is.
  void set_run_id(uint64_t run_id) { snapshot_.state.set_run_id(run_id); }
  // Copies the blocks that no update has copied, each under its lock. Returns the whole.
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
  // Called with every due snapshot, numbers ascending, on the thread whose request made it due, before that
  // request is answered.
  using SnapshotSink = std::function<void(std::unique_ptr<PendingSnapshot>)>;

  // What a shard begins with.
  struct Contents {
    std::vector<float> weights;
    std::vector<std::vector<float>> states;  // none: zeros
    std::vector<v1::BlockState> blocks;      // none: version 0
    uint64_t checkpoint = 0;                 // that it all comes from; 0: none
  };

  // `job` is complete and valid. `layout` outlives the shard. With `keeps_values` the shard allocates the
  // memory of one snapshot for the sink at once; without, those snapshots hold no values and cost no copy.
  Shard(const v1::Job& job, const ParameterLayout& layout, int index, Contents contents,
        SnapshotSink snapshot_sink, bool keeps_values = true);
  ~Shard();

  // Where bytes become floats: fills in payload and finite of a request that has its header. One pass over
  // memory. InvalidArgument for bytes that are no payload of the block in the job's codec.
  absl::Status ReadPayload(const PayloadView& bytes, Request* request);

  // The answers that are due now, to anybody, are appended to `answers`. Once every worker has pushed nothing
  // is allocated but what `answers` needs to grow.
  absl::Status Handle(Request request, std::vector<Answer>* answers);

  // Takes the rosters, the checkpoint that is announced, the budget and the learning rate's factor; may
  // release requests that wait. What waits in a group and is of a worker that is a member no more is dropped:
  // the master deals its samples again. `now`: as in a request.
  void SetRosters(const v1::ShardCommand& command, double now, std::vector<Answer>* answers);

  // Begins a snapshot under this number for the sink, unless there was one under it or a higher one, or a
  // weight is a NaN or an infinity.
  void Checkpoint(uint64_t number);

  // As the shard is at one moment; copied on the caller's thread, block by block.
  ShardSnapshot Snapshot() const;
  // Weights alone, for an evaluator.
  std::vector<float> Weights() const;

  // Without `statistics` the workers' are left out, which grow with their number.
  v1::ShardReport Report(bool statistics = true) const;
  // A worker's connection is open, until Disconnected. `by_peer`: the worker closed it, or it broke. A worker
  // whose last connection ended so is reported until it opens another.
  void Connected(uint32_t worker, uint64_t incarnation);
  void Disconnected(uint32_t worker, uint64_t incarnation, bool by_peer);

  // The number of the worker's push of which some blocks have come and some have not; 0: there is none.
  uint64_t PushUnderWay(uint32_t worker, uint64_t incarnation) const;
  // Payload bytes that have come and that have gone out since the start.
  uint64_t bytes_moved() const { return bytes_pushed_ + bytes_pulled_; }
  // Updates that the shard has seen: the mean over its blocks, rounded down.
  uint64_t version() const { return total_updates_.load() / blocks_.size(); }
  bool IsMember(uint32_t worker, uint64_t incarnation) const;

  int index() const { return index_; }
  Range block_range(int block) const { return layout_.block(index_, block); }
  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  // Of all payloads, those that came and those that go out.
  BufferPool* pool() { return &pool_; }

 private:
  struct BlockSlot;
  struct WorkerSlot;
  struct Contribution;
  // What an answer carries; null: nothing.
  struct Payload {
    BufferPtr bytes;
    float scale = 1;
    BufferPtr sample;  // of the center that it was made of
  };
  // What a call leads to once its locks are released.
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
  // Counts duplicates.
  static absl::StatusOr<PushLedger::Seen> Look(const BlockHeader& header, WorkerSlot* worker);
  void HandleDuplicate(BlockSlot* slot, Request request, Effects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  bool IsLate(const BlockSlot& slot, const Request& request) const ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // A contribution that will be in no update.
  void Dismiss(BlockSlot* slot, WorkerSlot* worker, Request request, v1::Block::Fate fate, Effects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Answers before the contribution is in an update.
  void Accept(BlockSlot* slot, WorkerSlot* worker, Request request, Effects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Makes every update that the gate allows of what waits at the block.
  void Advance(BlockSlot* slot, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  void AdvanceGroup(BlockSlot* slot, uint32_t group, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  void AdvanceQueue(BlockSlot* slot, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Of the slot's contributions to it.
  void Update(BlockSlot* slot, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // The update itself; returns the weights after it, where a contribution asks for them.
  Payload Apply(BlockSlot* slot, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // What became of it is counted.
  void Settle(const Contribution& contribution) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Keeps its answer until ReleaseHeld finds that its worker may go on.
  void Hold(BlockSlot* slot, Contribution contribution) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Answers to all who are held up by nobody any more. `weights`: as they are, or nothing.
  void ReleaseHeld(BlockSlot* slot, Payload weights, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  void ReleasePulls(BlockSlot* slot, Payload weights, Effects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // An answer without an update: to what was applied already, is to be applied later, or came too late.
  void AnswerOnly(BlockSlot* slot, Request request, v1::Block::Fate fate, Effects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // `version`: of the block that the answer is of.
  void Emit(Request request, v1::Block::Fate fate, uint64_t staleness, Payload payload, uint64_t version,
            Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);
  // Since the worker was sent what it computed with; nothing where this shard has sent it none.
  std::optional<Lag> LagOf(const BlockSlot& slot, const Request& request, double now) const;
  BufferPtr CopyWeights(const BlockSlot& slot);
  BufferPtr TakeSample(const BlockSlot& slot);
  // As the job sends them.
  Payload EncodeWeights(const BlockSlot& slot);
  Rule::Center CenterOf(const BlockSlot& slot) const;
  void SetVersion(BlockSlot* slot, uint64_t version, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(roster_mu_);

  // Returns memory for the values of a snapshot, with all of its pages touched.
  ShardSnapshot Allocate(bool with_states) const;
  // The same, for the sink: what the last one has given back, where there is one.
  ShardSnapshot TakeMemory();
  // Marks all blocks, to be copied into `memory`. One without values is complete at once.
  std::unique_ptr<PendingSnapshot> Begin(ShardSnapshot memory) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(roster_mu_);
  // Everything but values.
  void FillState(uint64_t number, v1::ShardState* state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(roster_mu_);
  // Returns the mark of the worker with this index, with the caller holding the lock of its ledger.
  v1::PushMark MarkOf(uint32_t index, const PushLedger& ledger) const;
  // For the snapshots that wait for it; before an update writes to the block.
  void CopyMarked(BlockSlot* slot) const;
  void CopyBlock(const BlockSlot& slot, ShardSnapshot* to) const;
  // Takes the marks of a snapshot away; with `copy` the blocks that have them are copied first.
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

#endif  // CATCHMENT_SERVER_SHARD_H_
