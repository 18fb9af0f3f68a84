// Tracks each block of one shard through an operation: its values are being computed, it is ready to be sent,
// it is on its way, it is answered.
//
// The lowest ready block is sent next, because the next forward pass reads it first: if the network is slower
// than the backward pass, the first layers overtake the last ones (Jayarajan et al. 2019, "Priority-based
// parameter propagation for distributed DNN training", arXiv:1905.03960, there per slice of a layer).
//
// Shapes: ranges are of the flat vector; parts in other shards are ignored.
// Threads: not thread-safe. Allocates at construction only.
#ifndef CATCHMENT_WORKER_CLIENT_BLOCK_SCHEDULE_H_
#define CATCHMENT_WORKER_CLIENT_BLOCK_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "common/parameter_layout.h"

namespace catchment {

class BlockSchedule {
 public:
  static constexpr int kNone = -1;

  // `layout` outlives the schedule, which begins with all blocks answered.
  BlockSchedule(const ParameterLayout* layout, int shard);

  // A new operation. Without input all blocks are ready at once.
  void Start(bool has_input);
  // Marks these values as final; each is marked once. Returns true if a block became ready by it.
  bool Ready(Range range);
  // The block to send now, kNone if none is ready. It is on its way then.
  int Next();
  bool OnItsWay(uint32_t block) const { return block < blocks_.size() && blocks_[block].stage == kOnItsWay; }
  // A block that is on its way.
  void Answered(int block);
  // The connection broke: blocks on their way are ready again.
  void SendAgain();

  // Blocks that Next has not given out.
  int unsent() const { return unsent_; }
  int unanswered() const { return unanswered_; }
  // Returns the number of unanswered blocks that hold some of these values.
  int unanswered(Range range) const;

 private:
  enum Stage : uint8_t { kComputed, kReady, kOnItsWay, kAnswered };
  struct Block {
    Stage stage = kAnswered;
    int64_t missing = 0;  // values that are not final
  };
  void MakeReady(int block);

  const ParameterLayout& layout_;
  const int shard_;
  std::vector<Block> blocks_;
  std::vector<int> ready_;  // a heap, the lowest index on top
  int unsent_ = 0;
  int unanswered_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_CLIENT_BLOCK_SCHEDULE_H_
