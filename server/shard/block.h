// One block of a shard: its part of the weights and of the optimizer's states, its version, and the requests
// that wait at it.
//
// A push or an exchange waits until the gate (server/shard/gate.h) finds that an update is due, which the
// rule (server/rules/rule.h) then makes. Answers are appended to the caller's vector, which delivers them
// after all locks are released.
//
// Threads: safe. A block has one lock, which is held while an update is applied. The caller of an operation
// with a BlockCall holds the lock that guards BlockCall::commanded, at least for reading. A worker's lock is
// taken under the block's. In steady state no operation allocates memory except for `answers`.
#ifndef CATCHMENT_SERVER_SHARD_BLOCK_H_
#define CATCHMENT_SERVER_SHARD_BLOCK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/codec/codec.h"
#include "common/job/parameter_layout.h"
#include "proto/checkpoint.pb.h"
#include "proto/wire.pb.h"
#include "server/rules/gradient_noise.h"
#include "server/rules/momentum_control.h"
#include "server/rules/rule.h"
#include "server/shard/block_image.h"
#include "server/shard/buffer_pool.h"
#include "server/shard/calls.h"
#include "server/shard/commanded_state.h"
#include "server/shard/deadlines.h"
#include "server/shard/gap_sample.h"
#include "server/shard/group.h"
#include "server/shard/push_ledger.h"
#include "server/shard/quorum_counts.h"
#include "server/shard/request.h"
#include "server/shard/ring.h"
#include "server/shard/shard_snapshot.h"
#include "server/shard/standby_log.h"

namespace catchment {

// The state that the blocks of a shard share.
struct BlockContext {
  // `weights` and `states` are those of the whole shard. `log`: null if the shard has no standby.
  BlockContext(const v1::Job& job, const ParameterLayout& layout, int index, std::vector<float> weights,
               std::vector<std::vector<float>> states, StandbyLog* log);

  const v1::Job job;
  const int64_t position;  // of the shard in the flat vector of parameters
  const std::unique_ptr<const Rule> rule;
  const bool has_gradient_noise;
  const bool adds_up;  // contributions, as AddsUpContributions says
  const Codec pull;
  const GapSample gap_sample;
  BufferPool pool;
  // Each block's part is guarded by the block's lock.
  std::vector<float> weights;
  std::vector<std::vector<float>> states;

  StandbyLog* const log;
  std::atomic<uint64_t> bytes_pushed{0};   // payloads
  std::atomic<uint64_t> total_updates{0};  // of all blocks
  // The version of a block after its first update with a weight that is not finite; 0: there was none.
  std::atomic<uint64_t> non_finite_version{0};
  std::atomic<uint64_t> bytes_pulled{0};

  // Only with consistency.quorum.
  Deadlines deadlines;
  Calls calls;
  QuorumCounts quorum_counts;
  std::atomic<double> answer_seconds{0};  // from an update until an answer has been sent, on average
};

// The surroundings of one operation, and its effects after all locks are released.
struct BlockCall {
  BlockCall(const CommandedState& commanded, double now, std::vector<Answer>* answers)
      : commanded(commanded), now(now), answers(answers) {}

  const CommandedState& commanded;
  const double now;                    // seconds
  std::vector<Answer>* const answers;  // receives all answers that are due, also those to other requests
  bool has_new_rosters = false;        // the operation is Block::TakeRosters
  uint64_t due_checkpoint = 0;         // receives its number, if the operation reached its version
};

class Block {
 public:
  // `context` outlives the block. `index`: of the block in its shard. `range`: of the block in the shard's
  // vectors. `tensor_ends`: in the block, if the layout has whole tensors. `groups`: of the gate.
  Block(BlockContext* context, uint32_t index, Range range, std::vector<int64_t> tensor_ends, uint32_t groups,
        v1::BlockState state);

  // Continues with what another process had. Weights and states are in the context already, and the records
  // of workers in `commanded`. Called before any other operation.
  void Restore(const BlockImage& image, const CommandedState& commanded);

  int64_t size() const { return range_.size(); }

  // Answers a pull, or keeps it until the block has this version.
  void Pull(Envelope envelope, uint64_t version, BlockCall* call);
  // Takes a push or an exchange of a member, whose record is `worker`. Errors: InvalidArgument if it breaks
  // the protocol; it then changes nothing.
  absl::Status Push(WorkerRecord* worker, Envelope envelope, Contribution contribution, BlockCall* call);
  // Drops the waiting contributions in groups of workers that have left, and makes the updates
  // that are due with new rosters.
  void TakeRosters(BlockCall* call);
  // Makes the updates that are due at this time without another request.
  void Tick(BlockCall* call);

  uint64_t version() const;
  // Returns a copy of its weights.
  BufferPtr Weights() const;
  v1::BlockState State() const;
  // Returns the block for an image without its weights and states, with the vectors of the other values.
  StandbyLog::Change Image(const CommandedState& commanded) const;
  struct Progress {
    uint64_t version = 0;
    uint64_t samples = 0;
    uint64_t late_samples = 0;
    NoiseAverage noise;
  };
  // Returns how far the block is. Adds the workers whose answers wait for a version or for other workers to
  // `waiting`.
  Progress Report(std::set<uint32_t>* waiting) const;
  // Returns the learning rate of the next update, without the momentum's control.
  double NextLearningRate(const CommandedState& commanded) const;
  // Returns the state of the momentum's control; absent if the job has none.
  std::optional<v1::MomentumState> Momentum() const;

  // Marks the block to be copied into `to` before it changes.
  void Mark(ShardSnapshot* to);
  // Removes the mark, if the block has not been copied yet; with `copy` copies it first.
  void Unmark(ShardSnapshot* to, bool copy);
  // The same for a reader of the weights, which takes those of the time of the mark.
  void Mark(PendingWeights* reader);
  void Unmark(PendingWeights* reader);
  BufferPtr TakeMarked(PendingWeights* reader);

 private:
  // The weights of an answer; null: none.
  struct Payload {
    BufferPtr bytes;
    float scale = 1;
    BufferPtr sample;  // of the same center
  };
  struct WaitingPull {
    Envelope envelope;
    uint64_t version = 0;
  };
  // A contribution to the current update.
  struct Input {
    WaitingContribution waiting;
    Payload answer;  // the contribution's own vector, if the rule has answers
    std::optional<Lag> lag;
  };
  // The outcome of a request.
  struct Outcome {
    Envelope envelope;
    Payload answer;
    v1::Block::Fate fate = v1::Block::FATE_UNSET;
    uint64_t staleness = 0;
  };
  // The outcome of a contribution that is applied, and is answered when the slowest workers have caught up.
  struct Held {
    Outcome outcome;
    uint64_t version = 0;  // of the block, including this contribution
    uint64_t clock = 0;    // of its worker, including this contribution
  };

  // The changes of the current operation, for the standby.
  struct Changes {
    // Weights that a worker was sent.
    struct SentWeights {
      uint32_t worker = 0;
      BufferPtr weights;
      uint64_t version = 0;
    };
    // An update by a rule with answers.
    struct GroupUpdate {
      uint32_t group = 0;
      uint32_t contributions = 0;
      BufferPtr before;  // weights
    };
    bool any = false;
    bool values = false;
    BufferPtr weights;  // a copy of the new ones, if there is one
    v1::BlockChange change;
    std::vector<BufferPtr> accepted;
    std::vector<SentWeights> sent;
    std::vector<GroupUpdate> group_updates;
  };

  absl::Status PushLocked(WorkerRecord* worker, Envelope envelope, Contribution contribution, BlockCall* call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PullLocked(Envelope envelope, uint64_t version, BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeRostersLocked(BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Appends what the operation has changed to the standby's log. Its answers, from `first` on, wait for that.
  void Log(size_t first, BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns what the operation has changed, and begins the next one.
  StandbyLog::Change TakeChanges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FillState(v1::BlockChange* change) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::BlockState StateLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes changes for the standby, if there is one.
  void NoteSettled(const Envelope& envelope, v1::Block::Fate fate, uint64_t staleness,
                   const std::optional<Lag>& lag) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteAccepted(const WaitingContribution& accepted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Returns InvalidArgument for more samples than the contribution's steps can have.
  absl::Status CheckSamples(const WaitingContribution& arrived, const PushLedger& ledger) const;
  // Looks a push up in the worker's ledger, and counts duplicates.
  absl::StatusOr<PushLedger::Seen> Lookup(uint64_t sequence, WorkerRecord* worker) const;
  void HandleDuplicate(Envelope envelope, const Contribution& contribution, BlockCall* call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns true if a contribution computed at `version`, at most the block's, is too old: the worker's group
  // has made the update to which it belongs, or it is beyond the staleness limit.
  bool IsLate(uint32_t worker, uint64_t version, const Gate& gate) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Rejects a contribution, which will be in no update.
  void Reject(WorkerRecord* worker, WaitingContribution rejected, v1::Block::Fate fate, BlockCall* call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Answers a contribution before it is in an update.
  void Accept(WorkerRecord* worker, WaitingContribution accepted, BlockCall* call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Calls the other active members for the update that a contribution of `opener` has begun.
  void CallOthers(uint32_t opener, BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Make every update of the waiting contributions that the gate allows.
  void AdvanceGroup(uint32_t group, BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AdvanceQueue(BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds up the contributions that wait in the group, as far as it may.
  void AddUpWaiting(uint32_t group, const Gate& gate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops the group's sum, and has the workers whose contributions are in it send them again.
  void DropSum(Group* group, BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Counts the update of `current_` that a quorum is about to make.
  void CountQuorum(const Gate::Tally& tally, const BlockCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes one update of `current_`, which are the group's contributions.
  void UpdateGroup(uint32_t group, BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes one update of `current_`.
  void Update(BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets the rule make the update; returns the weights after it if a contribution asks for them.
  Payload Apply(BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Fills in `applicable_` from the finite contributions of `current_`; returns the sum of their samples.
  uint64_t SelectApplicable(double now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns true if the noise is to be measured in the update of this version.
  bool MayMeasureNoise() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns true if the noise is to be measured in the update of `applicable_`.
  bool MeasuresNoise() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the share of the budget that has been applied.
  double ShareApplied(const CommandedState& commanded) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  float LearningRateNow(const CommandedState& commanded) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Records the outcome of a contribution in the worker's ledger.
  void Settle(const Outcome& outcome, const std::optional<Lag>& lag, const CommandedState& commanded)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Holds the answer to a contribution until ReleaseHeld finds that its worker may continue.
  void Hold(Outcome outcome, const Gate& gate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Answers the held contributions whose workers may continue. `weights`: the current ones, or none.
  void ReleaseHeld(Payload weights, BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Answers the pulls whose version is reached. `weights`: the current ones, or none.
  void ReleasePulls(Payload weights, BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetVersion(uint64_t version, BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Answers a contribution without an update: it was already applied, will be applied later, or is too late.
  // `last`: as for Difference.
  void AnswerOnly(Envelope envelope, const Contribution& contribution, v1::Block::Fate fate,
                  const Group::LastUpdate* last, BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Appends the answer to a request. `version`: of the block.
  void Emit(Outcome outcome, uint64_t version, BlockCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the elastic difference to the center, which is not moved: as it was in the update `last`, or, if
  // that is null or not known, as it is now.
  Payload Difference(const Contribution& contribution, const Group::LastUpdate* last) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the lag since the worker was sent the weights that it used; none if this shard has sent it none.
  std::optional<Lag> LagOf(const Sent& sent, double now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Rule::Center Center() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  BufferPtr CopyOf(const float* values) const;
  BufferPtr CopyWeights() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  BufferPtr TakeSample() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Encodes the weights in the job's codec.
  Payload EncodeWeights() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CopyTo(ShardSnapshot* to) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  BlockContext& context_;
  const uint32_t index_;
  const Range range_;
  const std::vector<int64_t> tensor_ends_;

  mutable Mutex mu_;
  // Vectors keep their memory from update to update.
  v1::BlockState state_ ABSL_GUARDED_BY(mu_);
  Changes changes_ ABSL_GUARDED_BY(mu_);  // only with a standby
  uint64_t last_change_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t logged_version_ ABSL_GUARDED_BY(mu_) = 0;                         // of the last change with values
  const std::unique_ptr<MomentumControl> momentum_ ABSL_PT_GUARDED_BY(mu_);  // null if the job has none
  NoiseAverage noise_ ABSL_GUARDED_BY(mu_);
  // The waiting contributions, by group or in order of arrival.
  std::vector<Group> groups_ ABSL_GUARDED_BY(mu_);
  Ring<WaitingContribution> queue_ ABSL_GUARDED_BY(mu_);
  std::vector<Input> current_ ABSL_GUARDED_BY(mu_);               // to the update that is being made
  Group::Sum sum_ ABSL_GUARDED_BY(mu_);                           // of some of them
  std::vector<Rule::Input> applicable_ ABSL_GUARDED_BY(mu_);      // the finite ones, for the rule
  std::vector<WaitingPull> pulls_ ABSL_GUARDED_BY(mu_);           // of later versions
  std::vector<QuorumCounts::Share> shares_ ABSL_GUARDED_BY(mu_);  // in the update; only with a quorum
  // Only with a staleness bound.
  std::vector<Gate::Finished> finished_ ABSL_GUARDED_BY(mu_);  // by worker index
  std::vector<Held> held_ ABSL_GUARDED_BY(mu_);
  // The snapshots to which the block must be copied before it changes.
  std::vector<ShardSnapshot*> marks_ ABSL_GUARDED_BY(mu_);
  std::vector<PendingWeights*> readers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_BLOCK_H_
