#include "server/master/push_marks.h"

#include <algorithm>

namespace catchment {

void PushMarks::Update(const v1::ShardReport& report) {
  for (const v1::PushMark& mark : report.marks()) {
    if (mark.worker() >= marks_.size()) {
      marks_.resize(mark.worker() + 1, std::vector<v1::PushMark>(num_shards_));
    }
    marks_[mark.worker()].at(report.shard()) = mark;
  }
}

void PushMarks::Forget(uint32_t shard) {
  for (std::vector<v1::PushMark>& of_worker : marks_) of_worker.at(shard).Clear();
}

PushMarks::Mark PushMarks::Of(uint32_t worker, uint64_t incarnation) const {
  if (worker >= marks_.size()) return {};
  Mark over_all = {.answered = UINT64_MAX, .settled = UINT64_MAX};
  for (const v1::PushMark& mark : marks_[worker]) {
    const bool known = mark.incarnation() == incarnation;
    over_all.answered = std::min(over_all.answered, known ? mark.answered_steps() : 0);
    over_all.settled = std::min(over_all.settled, known ? mark.settled_steps() : 0);
    over_all.begun = std::max(over_all.begun, known ? mark.begun_steps() : 0);
    over_all.waiting |= known && mark.settled_steps() < mark.answered_steps();
  }
  return over_all;
}

bool PushMarks::WaitsForOthers(uint32_t worker, uint64_t incarnation) const {
  if (worker >= marks_.size()) return false;
  const uint64_t fewest = Of(worker, incarnation).answered;
  return std::all_of(marks_[worker].begin(), marks_[worker].end(), [&](const v1::PushMark& mark) {
    const bool known = mark.incarnation() == incarnation;
    return (known ? mark.answered_steps() : 0) > fewest || (known && mark.waits());
  });
}

}  // namespace catchment
