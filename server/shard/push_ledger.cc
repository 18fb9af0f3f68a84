#include "server/shard/push_ledger.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

// Larger values are counted in steps of 1/16 of their size, so that the table remains small.
constexpr uint64_t kExactStaleness = 256;

uint64_t Rounded(uint64_t staleness) {
  if (staleness < kExactStaleness) return staleness;
  const int shift = 64 - __builtin_clzll(staleness) - 5;
  return staleness >> shift << shift;
}

}  // namespace

PushLedger::PushLedger(std::vector<uint32_t> fragments)
    : fragments_(std::move(fragments)), arrived_(fragments_.size()), done_(fragments_.size()) {
  for (const uint32_t fragment : fragments_) {
    if (fragment >= lanes_.size()) lanes_.resize(fragment + 1);
    ++lanes_[fragment].num_blocks;
  }
}

void PushLedger::Begin(uint64_t incarnation) {
  // Some blocks of an interrupted push will never arrive.
  std::erase_if(pushes_, [this](const Push& push) {
    return push.incarnation == incarnation_ && push.sequence > lanes_[push.fragment].watermark;
  });
  incarnation_ = incarnation;
  for (uint32_t fragment = 0; fragment < lanes_.size(); ++fragment) {
    lanes_[fragment] = {.num_blocks = lanes_[fragment].num_blocks};
    BeginPush(fragment);
  }
}

void PushLedger::BeginPush(uint32_t fragment) {
  for (size_t block = 0; block < fragments_.size(); ++block) {
    if (fragments_[block] == fragment) arrived_[block] = done_[block] = false;
  }
  lanes_[fragment].num_arrived = lanes_[fragment].num_done = 0;
}

uint64_t PushLedger::under_way() const {
  for (uint64_t fragment = 0; fragment < lanes_.size(); ++fragment) {
    const Lane& lane = lanes_[fragment];
    if (lane.num_arrived > 0 && lane.num_arrived < lane.num_blocks)
      return lane.watermark * lanes_.size() + fragment + 1;
  }
  return 0;
}

bool PushLedger::all_arrived() const {
  bool all = false;
  for (const Lane& lane : lanes_) {
    if (lane.num_arrived == 0) continue;
    if (lane.num_arrived < lane.num_blocks) return false;
    all = true;
  }
  return all;
}

absl::StatusOr<PushLedger::Seen> PushLedger::Lookup(uint64_t sequence, uint32_t block) const {
  if (sequence == 0) return absl::InvalidArgumentError("push 0: sequence numbers start at 1");
  const uint64_t watermark = LaneOf(block).watermark;
  if (sequence <= watermark) return Seen::kDone;
  if (sequence > watermark + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("push ", sequence, " came before push ", watermark + 1, " was complete"));
  }
  return done_[block] ? Seen::kDone : Seen::kNew;
}

std::optional<uint64_t> PushLedger::StepsIn(uint32_t block, uint64_t steps) const {
  const Lane& lane = LaneOf(block);
  if (lane.watermark == 0) return std::nullopt;
  return steps - std::min(steps, lane.steps);
}

absl::Status PushLedger::Arrived(uint64_t sequence, uint32_t block, uint64_t steps) {
  Lane& lane = LaneOf(block);
  if (sequence != lane.watermark + 1 || arrived_[block]) return absl::OkStatus();
  if (lane.num_arrived > 0 && steps != lane.next_steps) {
    return absl::InvalidArgumentError(absl::StrCat("push ", sequence, " holds ", steps, " steps in block ",
                                                   block, ", and ", lane.next_steps, " in another one"));
  }
  if (steps < lane.steps) {
    return absl::InvalidArgumentError(absl::StrCat("push ", sequence, " and those before it hold ", steps,
                                                   " steps, fewer than the ", lane.steps, " of push ",
                                                   lane.watermark));
  }
  lane.next_steps = steps;
  arrived_[block] = true;
  ++lane.num_arrived;
  return absl::OkStatus();
}

void PushLedger::Withdraw(uint64_t sequence, uint32_t block) {
  Lane& lane = LaneOf(block);
  if (sequence != lane.watermark + 1 || !arrived_[block] || done_[block]) return;
  arrived_[block] = false;
  if (--lane.num_arrived == 0) lane.next_steps = lane.steps;
}

void PushLedger::Accept(uint64_t sequence, uint32_t block) {
  Lane& lane = LaneOf(block);
  if (sequence != lane.watermark + 1 || done_[block]) return;
  if (lane.num_done == 0) {
    pushes_.push_back({.incarnation = incarnation_,
                       .fragment = fragments_[block],
                       .sequence = sequence,
                       .steps_before = lane.steps,
                       .steps = lane.next_steps});
  }
  done_[block] = true;
  if (++lane.num_done < lane.num_blocks) return;
  lane.watermark = sequence;
  lane.steps = lane.next_steps;
  BeginPush(fragments_[block]);
}

void PushLedger::Settle(uint64_t incarnation, uint64_t sequence, uint32_t block, v1::Block::Fate fate,
                        uint64_t staleness, const std::optional<Lag>& lag) {
  const uint32_t fragment = fragments_[block];
  const auto push = std::find_if(pushes_.begin(), pushes_.end(), [&](const Push& p) {
    return p.incarnation == incarnation && p.fragment == fragment && p.sequence == sequence;
  });
  if (push == pushes_.end()) return;
  push->any_applied |= fate == v1::Block::APPLIED;
  push->any_late |= fate == v1::Block::LATE;
  push->any_non_finite |= fate == v1::Block::NON_FINITE;
  push->max_staleness = std::max(push->max_staleness, staleness);
  if (lag) {
    const Lag& before = push->lag ? *push->lag : Lag();
    push->lag = Lag{std::max(before.seconds, lag->seconds), before.squared_gap + lag->squared_gap,
                    before.gap_values + lag->gap_values};
  }
  if (++push->settled < lanes_[fragment].num_blocks) return;
  Count(*push);
  pushes_.erase(push);
}

void PushLedger::Done(uint64_t sequence, uint32_t block, v1::Block::Fate fate, uint64_t staleness) {
  if (sequence != LaneOf(block).watermark + 1 || done_[block]) return;
  Accept(sequence, block);
  Settle(incarnation_, sequence, block, fate, staleness);
}

void PushLedger::Count(const Push& push) {
  const std::pair<uint64_t, uint64_t> number = {push.incarnation, push.sequence};
  if (push.any_non_finite) {
    ++non_finite_;
    ++non_finite_in_a_row_;
    last_non_finite_ = number;
    return;
  }
  if (number > last_non_finite_) non_finite_in_a_row_ = 0;
  if (push.any_applied) {
    ++applied_;
    split_ += push.any_late;
    ++staleness_[Rounded(push.max_staleness)];
    if (push.lag) CountLag(*push.lag);
  } else {
    ++late_;
  }
}

void PushLedger::CountLag(const Lag& lag) {
  lags_.Add(1e6 * lag.seconds);
  max_seconds_ = std::max(max_seconds_, lag.seconds);
  if (lag.gap_values == 0) return;
  const double gap = std::sqrt(lag.squared_gap / static_cast<double>(lag.gap_values));
  ++gaps_;
  gap_sum_ += gap;
  max_gap_ = std::max(max_gap_, gap);
}

uint64_t PushLedger::Waiting() const {
  return std::count_if(pushes_.begin(), pushes_.end(), [this](const Push& push) {
    return push.incarnation != incarnation_ || push.sequence <= lanes_[push.fragment].watermark;
  });
}

v1::WorkerStatistics PushLedger::Statistics(uint32_t worker) const {
  v1::WorkerStatistics statistics;
  statistics.set_worker(worker);
  statistics.set_applied(applied_);
  statistics.set_duplicate(duplicates_);
  statistics.set_late(late_);
  statistics.set_split(split_);
  statistics.set_non_finite(non_finite_);
  statistics.set_non_finite_in_a_row(non_finite_in_a_row_);
  for (const auto& [value, count] : staleness_) {
    statistics.add_staleness_values(value);
    statistics.add_staleness_counts(count);
  }
  lags_.ForEach([&statistics](uint64_t us, uint64_t count) {
    statistics.add_staleness_us(us);
    statistics.add_staleness_us_counts(count);
  });
  statistics.set_staleness_seconds_max(max_seconds_);
  statistics.set_gap_count(gaps_);
  statistics.set_gap_sum(gap_sum_);
  statistics.set_gap_max(max_gap_);
  statistics.set_waiting(Waiting());
  return statistics;
}

v1::PushMark PushLedger::Mark(uint32_t worker) const {
  uint64_t answered = UINT64_MAX, settled = UINT64_MAX, begun = 0;
  for (uint32_t fragment = 0; fragment < lanes_.size(); ++fragment) {
    if (lanes_[fragment].num_blocks == 0) continue;
    uint64_t settled_in_lane = lanes_[fragment].steps;
    for (const Push& push : pushes_) {
      if (push.incarnation != incarnation_ || push.fragment != fragment) continue;
      settled_in_lane = std::min(settled_in_lane, push.steps_before);
      if (push.any_applied || push.any_late) begun = std::max(begun, push.steps);
    }
    answered = std::min(answered, lanes_[fragment].steps);
    settled = std::min(settled, settled_in_lane);
    begun = std::max(begun, settled_in_lane);
  }
  v1::PushMark mark;
  mark.set_worker(worker);
  mark.set_incarnation(incarnation_);
  mark.set_answered_steps(answered);
  mark.set_settled_steps(settled);
  mark.set_begun_steps(begun);
  mark.set_waits(all_arrived());
  return mark;
}

v1::WorkerLedger PushLedger::Save(uint32_t worker) const {
  v1::WorkerLedger saved;
  saved.set_worker(worker);
  saved.set_incarnation(incarnation_);
  saved.set_watermark(lanes_[0].watermark);
  saved.set_steps(lanes_[0].steps);
  saved.set_next_steps(lanes_[0].next_steps);
  for (size_t fragment = 1; fragment < lanes_.size(); ++fragment) {
    v1::WorkerLedger::Lane& lane = *saved.add_further_lanes();
    lane.set_watermark(lanes_[fragment].watermark);
    lane.set_steps(lanes_[fragment].steps);
    lane.set_next_steps(lanes_[fragment].next_steps);
  }
  for (size_t block = 0; block < done_.size(); ++block) {
    if (done_[block]) saved.add_done(block);
  }
  for (const Push& push : pushes_) {
    v1::WorkerLedger::Push& added = *saved.add_pushes();
    added.set_incarnation(push.incarnation);
    added.set_fragment(push.fragment);
    added.set_sequence(push.sequence);
    added.set_steps_before(push.steps_before);
    added.set_steps(push.steps);
    added.set_settled(push.settled);
    added.set_max_staleness(push.max_staleness);
    if (push.lag) {
      added.set_has_lag(true);
      added.set_lag_seconds(push.lag->seconds);
      added.set_squared_gap(push.lag->squared_gap);
      added.set_gap_values(push.lag->gap_values);
    }
    added.set_any_applied(push.any_applied);
    added.set_any_late(push.any_late);
    added.set_any_non_finite(push.any_non_finite);
  }
  *saved.mutable_statistics() = Statistics(worker);
  saved.set_last_non_finite_incarnation(last_non_finite_.first);
  saved.set_last_non_finite_sequence(last_non_finite_.second);
  return saved;
}

absl::Status PushLedger::Restore(const v1::WorkerLedger& saved) {
  *this = PushLedger(std::move(fragments_));
  if (static_cast<size_t>(saved.further_lanes_size()) + 1 != lanes_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the ledger of worker ", saved.worker(), " has ",
                                                   saved.further_lanes_size() + 1, " fragments, not ",
                                                   lanes_.size()));
  }
  incarnation_ = saved.incarnation();
  lanes_[0].watermark = saved.watermark();
  lanes_[0].steps = saved.steps();
  lanes_[0].next_steps = saved.next_steps();
  for (size_t fragment = 1; fragment < lanes_.size(); ++fragment) {
    const v1::WorkerLedger::Lane& lane = saved.further_lanes(static_cast<int>(fragment) - 1);
    lanes_[fragment].watermark = lane.watermark();
    lanes_[fragment].steps = lane.steps();
    lanes_[fragment].next_steps = lane.next_steps();
  }
  for (const uint32_t block : saved.done()) {
    // With all of its blocks the push would be the watermark.
    if (block >= done_.size() || done_[block] || LaneOf(block).num_done + 1 == LaneOf(block).num_blocks) {
      return absl::InvalidArgumentError(absl::StrCat("the ledger of worker ", saved.worker(), " names block ",
                                                     block, " of ", done_.size()));
    }
    arrived_[block] = done_[block] = true;
    ++LaneOf(block).num_arrived;
    ++LaneOf(block).num_done;
  }
  for (const v1::WorkerLedger::Push& push : saved.pushes()) {
    if (push.fragment() >= lanes_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("the ledger of worker ", saved.worker(),
                                                     " has a push of fragment ", push.fragment(), " of ",
                                                     lanes_.size()));
    }
    pushes_.push_back({.incarnation = push.incarnation(),
                       .fragment = push.fragment(),
                       .sequence = push.sequence(),
                       .steps_before = push.steps_before(),
                       .steps = push.steps(),
                       .settled = push.settled(),
                       .max_staleness = push.max_staleness(),
                       .lag = push.has_lag() ? std::optional<Lag>({push.lag_seconds(), push.squared_gap(),
                                                                   push.gap_values()})
                                             : std::nullopt,
                       .any_applied = push.any_applied(),
                       .any_late = push.any_late(),
                       .any_non_finite = push.any_non_finite()});
  }
  last_non_finite_ = {saved.last_non_finite_incarnation(), saved.last_non_finite_sequence()};
  RestoreStatistics(saved.statistics());
  return absl::OkStatus();
}

void PushLedger::RestoreStatistics(const v1::WorkerStatistics& statistics) {
  applied_ = statistics.applied();
  duplicates_ = statistics.duplicate();
  late_ = statistics.late();
  split_ = statistics.split();
  non_finite_ = statistics.non_finite();
  non_finite_in_a_row_ = statistics.non_finite_in_a_row();
  for (int i = 0; i < std::min(statistics.staleness_values_size(), statistics.staleness_counts_size()); ++i)
    staleness_[statistics.staleness_values(i)] = statistics.staleness_counts(i);
  for (int i = 0; i < std::min(statistics.staleness_us_size(), statistics.staleness_us_counts_size()); ++i)
    lags_.Add(static_cast<double>(statistics.staleness_us(i)), statistics.staleness_us_counts(i));
  max_seconds_ = statistics.staleness_seconds_max();
  gaps_ = statistics.gap_count();
  gap_sum_ = statistics.gap_sum();
  max_gap_ = statistics.gap_max();
}

v1::Watermark PushLedger::Watermark(uint32_t worker) const {
  v1::Watermark watermark;
  watermark.set_worker(worker);
  watermark.set_incarnation(incarnation_);
  watermark.set_sequence(lanes_[0].watermark);
  for (size_t fragment = 1; fragment < lanes_.size(); ++fragment)
    watermark.add_sequences(lanes_[fragment].watermark);
  for (size_t block = 0; block < done_.size(); ++block) {
    if (done_[block]) watermark.add_partial(block);
  }
  return watermark;
}

}  // namespace catchment
