#include "worker/client/block_schedule.h"

#include <glog/logging.h>

#include <algorithm>
#include <functional>

namespace catchment {
namespace {

Range Overlap(Range a, Range b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace

BlockSchedule::BlockSchedule(const ParameterLayout* layout, int shard)
    : layout_(*layout), shard_(shard), blocks_(layout->num_blocks(shard)) {
  ready_.reserve(blocks_.size());
}

void BlockSchedule::Start(bool has_input) {
  ready_.clear();
  unsent_ = unanswered_ = static_cast<int>(blocks_.size());
  for (int b = 0; b < unanswered_; ++b) {
    if (has_input) {
      blocks_[b] = {kComputed, layout_.block(shard_, b).size()};
    } else {
      MakeReady(b);
    }
  }
}

bool BlockSchedule::Ready(Range range) {
  bool ready = false;
  const Range blocks = layout_.BlocksOf(shard_, range);
  for (int b = static_cast<int>(blocks.begin); b < blocks.end; ++b) {
    Block& block = blocks_[b];
    block.missing -= Overlap(range, layout_.block(shard_, b)).size();
    CHECK_GE(block.missing, 0) << "values of block " << b << " are reported as ready twice";
    if (block.missing > 0) continue;
    MakeReady(b);
    ready = true;
  }
  return ready;
}

int BlockSchedule::Next() {
  if (ready_.empty()) return kNone;
  std::pop_heap(ready_.begin(), ready_.end(), std::greater<>());
  const int block = ready_.back();
  ready_.pop_back();
  blocks_[block].stage = kOnItsWay;
  --unsent_;
  return block;
}

void BlockSchedule::Answered(int block) {
  CHECK_EQ(blocks_[block].stage, kOnItsWay);
  blocks_[block].stage = kAnswered;
  --unanswered_;
}

void BlockSchedule::SendAgain() {
  for (size_t b = 0; b < blocks_.size(); ++b) {
    if (blocks_[b].stage != kOnItsWay) continue;
    ++unsent_;
    MakeReady(static_cast<int>(b));
  }
}

int BlockSchedule::unanswered(Range range) const {
  const Range blocks = layout_.BlocksOf(shard_, range);
  return static_cast<int>(std::count_if(blocks_.begin() + blocks.begin, blocks_.begin() + blocks.end,
                                        [](const Block& block) { return block.stage != kAnswered; }));
}

void BlockSchedule::MakeReady(int block) {
  blocks_[block] = {kReady, 0};
  ready_.push_back(block);
  std::push_heap(ready_.begin(), ready_.end(), std::greater<>());
}

}  // namespace catchment
