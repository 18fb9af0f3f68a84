#include "worker/client/block_schedule.h"

#include <glog/logging.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace catchment {
namespace {

Range Overlap(Range a, Range b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace

BlockSchedule::BlockSchedule(const ParameterLayout* layout, int shard)
    : layout_(*layout),
      shard_(shard),
      fragments_of_blocks_(layout->FragmentsOfBlocks(shard)),
      blocks_(layout->num_blocks(shard)),
      fragments_(layout->num_fragments()) {
  ready_.reserve(blocks_.size());
}

int BlockSchedule::Start(bool has_input, uint32_t fragment) {
  Fragment& started = fragments_[fragment];
  if (started.unsent > 0) {
    std::erase_if(ready_, [&](const auto& ready) { return ready.first == started.order; });
    std::make_heap(ready_.begin(), ready_.end(), std::greater<>());
  }
  started = {.order = ++operations_};
  for (int b = 0; b < static_cast<int>(blocks_.size()); ++b) {
    if (fragments_of_blocks_[b] != fragment) continue;
    ++started.unanswered;
    if (has_input) {
      blocks_[b] = {kComputed, layout_.block(shard_, b).size()};
    } else {
      MakeReady(b);
    }
  }
  started.unsent = started.unanswered;
  return started.unanswered;
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
  const int block = ready_.back().second;
  ready_.pop_back();
  blocks_[block].stage = kOnItsWay;
  --FragmentOf(block).unsent;
  return block;
}

void BlockSchedule::Answered(int block) {
  CHECK_EQ(blocks_[block].stage, kOnItsWay);
  blocks_[block].stage = kAnswered;
  --FragmentOf(block).unanswered;
}

void BlockSchedule::SendAgain() {
  for (size_t b = 0; b < blocks_.size(); ++b) {
    if (blocks_[b].stage != kOnItsWay) continue;
    ++FragmentOf(static_cast<int>(b)).unsent;
    MakeReady(static_cast<int>(b));
  }
}

int BlockSchedule::Sum(int Fragment::*number) const {
  return std::accumulate(fragments_.begin(), fragments_.end(), 0,
                         [number](int sum, const Fragment& fragment) { return sum + fragment.*number; });
}

int BlockSchedule::unanswered(Range range) const {
  const Range blocks = layout_.BlocksOf(shard_, range);
  return static_cast<int>(std::count_if(blocks_.begin() + blocks.begin, blocks_.begin() + blocks.end,
                                        [](const Block& block) { return block.stage != kAnswered; }));
}

void BlockSchedule::MakeReady(int block) {
  blocks_[block] = {kReady, 0};
  ready_.emplace_back(FragmentOf(block).order, block);
  std::push_heap(ready_.begin(), ready_.end(), std::greater<>());
}

}  // namespace catchment
