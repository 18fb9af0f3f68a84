// Tracks each block of one shard through the operation of its fragment: its values are being computed, it is
// ready to be sent, it is on its way, it is answered.
//
// The lowest ready block of the fragment that was started first is sent next, because the next forward pass
// reads it first: if the network is slower than the backward pass, the first layers overtake the last ones
// (Jayarajan et al. 2019, "Priority-based parameter propagation for distributed DNN training",
// arXiv:1905.03960, there per slice of a layer).
//
// Shapes: ranges are of the flat vector; parts in other shards are ignored.
// Threads: not thread-safe. Allocates at construction only.
#ifndef CATCHMENT_WORKER_CLIENT_BLOCK_SCHEDULE_H_
#define CATCHMENT_WORKER_CLIENT_BLOCK_SCHEDULE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "common/job/parameter_layout.h"

namespace catchment {

class BlockSchedule {
 public:
  static constexpr int kNone = -1;

  // `layout` outlives the schedule, which begins with all blocks answered.
  BlockSchedule(const ParameterLayout* layout, int shard);

  // Begins an operation of a fragment, instead of the one in progress if there is one. Without input all of
  // its blocks are ready at once. Returns their number.
  int Start(bool has_input, uint32_t fragment = 0);
  // Marks these values as final; each is marked once. Returns true if a block became ready by it.
  bool Ready(Range range);
  // Returns the block to send now, which is then on its way; kNone if none is ready.
  int Next();
  bool OnItsWay(uint32_t block) const { return block < blocks_.size() && blocks_[block].stage == kOnItsWay; }
  // Notes that a block that is on its way was answered.
  void Answered(int block);
  // Makes the blocks on their way ready again, because the connection broke.
  void SendAgain();

  // Return the number of blocks that Next has not returned, and that are not answered.
  int unsent() const { return Sum(&Fragment::unsent); }
  int unanswered() const { return Sum(&Fragment::unanswered); }
  int unsent(uint32_t fragment) const { return fragments_[fragment].unsent; }
  int unanswered(uint32_t fragment) const { return fragments_[fragment].unanswered; }
  // Returns the number of unanswered blocks that hold some of these values.
  int unanswered(Range range) const;

 private:
  enum Stage : uint8_t { kComputed, kReady, kOnItsWay, kAnswered };
  struct Block {
    Stage stage = kAnswered;
    int64_t missing = 0;  // values that are not final
  };
  struct Fragment {
    uint64_t order = 0;  // of its operation
    int unsent = 0;
    int unanswered = 0;
  };
  Fragment& FragmentOf(int block) { return fragments_[fragments_of_blocks_[block]]; }
  int Sum(int Fragment::*number) const;
  void MakeReady(int block);

  const ParameterLayout& layout_;
  const int shard_;
  const std::vector<uint32_t>& fragments_of_blocks_;
  std::vector<Block> blocks_;
  std::vector<Fragment> fragments_;
  uint64_t operations_ = 0;
  std::vector<std::pair<uint64_t, int>> ready_;  // order and block: a heap, the lowest on top
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_CLIENT_BLOCK_SCHEDULE_H_
