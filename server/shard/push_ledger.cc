#include "server/shard/push_ledger.h"

#include <algorithm>
#include <cmath>

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

void PushLedger::Begin(uint64_t incarnation) {
  // Some blocks of an interrupted push will never arrive.
  std::erase_if(pushes_, [this](const Push& push) {
    return push.incarnation == incarnation_ && push.sequence > watermark_;
  });
  incarnation_ = incarnation;
  watermark_ = 0;
  steps_ = next_steps_ = 0;
  BeginPush();
}

void PushLedger::BeginPush() {
  std::fill(arrived_.begin(), arrived_.end(), false);
  num_arrived_ = 0;
  std::fill(done_.begin(), done_.end(), false);
  num_done_ = 0;
}

absl::StatusOr<PushLedger::Seen> PushLedger::Lookup(uint64_t sequence, uint32_t block) const {
  if (sequence == 0) return absl::InvalidArgumentError("push 0: sequence numbers start at 1");
  if (sequence <= watermark_) return Seen::kDone;
  if (sequence > watermark_ + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("push ", sequence, " came before push ", watermark_ + 1, " was complete"));
  }
  return done_[block] ? Seen::kDone : Seen::kNew;
}

absl::Status PushLedger::Arrived(uint64_t sequence, uint32_t block, uint64_t steps) {
  if (sequence != watermark_ + 1 || arrived_[block]) return absl::OkStatus();
  if (num_arrived_ > 0 && steps != next_steps_) {
    return absl::InvalidArgumentError(absl::StrCat("push ", sequence, " holds ", steps, " steps in block ",
                                                   block, ", and ", next_steps_, " in another one"));
  }
  if (steps < steps_) {
    return absl::InvalidArgumentError(absl::StrCat("push ", sequence, " and those before it hold ", steps,
                                                   " steps, fewer than the ", steps_, " of push ",
                                                   watermark_));
  }
  next_steps_ = steps;
  arrived_[block] = true;
  ++num_arrived_;
  return absl::OkStatus();
}

void PushLedger::Accept(uint64_t sequence, uint32_t block) {
  if (sequence != watermark_ + 1 || done_[block]) return;
  if (num_done_ == 0) {
    pushes_.push_back(
        {.incarnation = incarnation_, .sequence = sequence, .steps_before = steps_, .steps = next_steps_});
  }
  done_[block] = true;
  if (++num_done_ < done_.size()) return;
  watermark_ = sequence;
  steps_ = next_steps_;
  BeginPush();
}

void PushLedger::Settle(uint64_t incarnation, uint64_t sequence, v1::Block::Fate fate, uint64_t staleness,
                        const std::optional<Lag>& lag) {
  const auto push = std::find_if(pushes_.begin(), pushes_.end(), [&](const Push& p) {
    return p.incarnation == incarnation && p.sequence == sequence;
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
  if (++push->settled < done_.size()) return;
  Count(*push);
  pushes_.erase(push);
}

void PushLedger::Done(uint64_t sequence, uint32_t block, v1::Block::Fate fate, uint64_t staleness) {
  if (sequence != watermark_ + 1 || done_[block]) return;
  Accept(sequence, block);
  Settle(incarnation_, sequence, fate, staleness);
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
    return push.incarnation != incarnation_ || push.sequence <= watermark_;
  });
}

v1::WorkerStatistics PushLedger::Statistics(uint32_t worker) const {
  v1::WorkerStatistics statistics;
  statistics.set_worker(worker);
  statistics.set_applied(applied_);
  statistics.set_duplicate(duplicates_);
  statistics.set_late(late_);
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
  uint64_t settled = steps_, begun = 0;
  for (const Push& push : pushes_) {
    if (push.incarnation != incarnation_) continue;
    settled = std::min(settled, push.steps_before);
    if (push.any_applied || push.any_late) begun = std::max(begun, push.steps);
  }
  v1::PushMark mark;
  mark.set_worker(worker);
  mark.set_incarnation(incarnation_);
  mark.set_answered_steps(steps_);
  mark.set_settled_steps(settled);
  mark.set_begun_steps(std::max(settled, begun));
  mark.set_waits(all_arrived());
  return mark;
}

v1::WorkerLedger PushLedger::Save(uint32_t worker) const {
  v1::WorkerLedger saved;
  saved.set_worker(worker);
  saved.set_incarnation(incarnation_);
  saved.set_watermark(watermark_);
  saved.set_steps(steps_);
  saved.set_next_steps(next_steps_);
  for (size_t block = 0; block < done_.size(); ++block) {
    if (done_[block]) saved.add_done(block);
  }
  for (const Push& push : pushes_) {
    v1::WorkerLedger::Push& added = *saved.add_pushes();
    added.set_incarnation(push.incarnation);
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
  *this = PushLedger(static_cast<int>(done_.size()));
  incarnation_ = saved.incarnation();
  watermark_ = saved.watermark();
  steps_ = saved.steps();
  next_steps_ = saved.next_steps();
  for (const uint32_t block : saved.done()) {
    // With all of its blocks the push would be the watermark.
    if (block >= done_.size() || done_[block] || num_done_ + 1 == done_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("the ledger of worker ", saved.worker(), " names block ",
                                                     block, " of ", done_.size()));
    }
    arrived_[block] = done_[block] = true;
    ++num_arrived_;
    ++num_done_;
  }
  for (const v1::WorkerLedger::Push& push : saved.pushes()) {
    pushes_.push_back({.incarnation = push.incarnation(),
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
  watermark.set_sequence(watermark_);
  for (size_t block = 0; block < done_.size(); ++block) {
    if (done_[block]) watermark.add_partial(block);
  }
  return watermark;
}

}  // namespace catchment
