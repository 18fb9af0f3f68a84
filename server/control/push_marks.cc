#include "server/control/push_marks.h"

#include <algorithm>
#include <utility>

namespace catchment {

std::vector<PushMarks::Change> PushMarks::Update(const v1::ShardReport& report) {
  std::vector<Change> changes;
  for (const v1::PushMark& mark : report.marks()) {
    if (mark.worker() >= workers_.size()) {
      workers_.resize(mark.worker() + 1, Worker{std::vector<AtShard>(num_shards_), {}});
    }
    Worker& worker = workers_[mark.worker()];
    const AtShard now = {mark.incarnation(), mark.answered_steps(), mark.settled_steps(), mark.begun_steps(),
                         mark.waits()};
    const AtShard before = std::exchange(worker.shards.at(report.shard()), now);
    const bool same = before.incarnation == now.incarnation && worker.last.incarnation == now.incarnation;
    // The minimum over all shards cannot have risen if this shard's value was above it or has not changed.
    const bool was_lowest = before.settled <= worker.last.settled && before.settled != now.settled;
    if (same && !was_lowest) continue;
    const uint64_t settled = Of(mark.worker(), now.incarnation).settled;
    if (same && settled == worker.last.settled) continue;
    worker.last = {now.incarnation, settled};
    changes.push_back(worker.last);
  }
  return changes;
}

void PushMarks::Forget(uint32_t shard) {
  for (Worker& worker : workers_) worker.shards.at(shard) = AtShard();
}

PushMarks::Mark PushMarks::Of(uint32_t worker, uint64_t incarnation) const {
  if (worker >= workers_.size()) return {};
  Mark over_all = {.answered = UINT64_MAX, .settled = UINT64_MAX};
  for (const AtShard& at : workers_[worker].shards) {
    const bool known = at.incarnation == incarnation;
    over_all.answered = std::min(over_all.answered, known ? at.answered : 0);
    over_all.settled = std::min(over_all.settled, known ? at.settled : 0);
    over_all.begun = std::max(over_all.begun, known ? at.begun : 0);
    over_all.waiting |= known && at.settled < at.answered;
  }
  return over_all;
}

bool PushMarks::WaitsForOthers(uint32_t worker, uint64_t incarnation) const {
  if (worker >= workers_.size()) return false;
  const uint64_t fewest = Of(worker, incarnation).answered;
  const std::vector<AtShard>& shards = workers_[worker].shards;
  return std::all_of(shards.begin(), shards.end(), [&](const AtShard& at) {
    const bool known = at.incarnation == incarnation;
    return (known ? at.answered : 0) > fewest || (known && at.waits);
  });
}

}  // namespace catchment
