#include "server/push_ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

// Beyond it values are counted in steps of 1/16 of their size, so that the table stays small.
constexpr uint64_t kExactStaleness = 256;

uint64_t Rounded(uint64_t staleness) {
  if (staleness < kExactStaleness) return staleness;
  const int shift = 64 - __builtin_clzll(staleness) - 5;
  return staleness >> shift << shift;
}

}  // namespace

void PushLedger::Begin(uint64_t incarnation) {
  incarnation_ = incarnation;
  watermark_ = 0;
  std::fill(arrived_.begin(), arrived_.end(), false);
  num_arrived_ = 0;
  std::fill(done_.begin(), done_.end(), false);
  num_done_ = 0;
  max_staleness_ = 0;
  any_applied_ = any_late_ = any_non_finite_ = false;
}

absl::StatusOr<PushLedger::Seen> PushLedger::Look(uint64_t sequence, uint32_t block) const {
  if (sequence == 0) return absl::InvalidArgumentError("push 0: sequence numbers begin at 1");
  if (sequence <= watermark_) return Seen::kDone;
  if (sequence > watermark_ + 1) {
    return absl::InvalidArgumentError(absl::StrCat("push ", sequence, " came before push ", watermark_ + 1,
                                                   " was complete"));
  }
  return done_[block] ? Seen::kDone : Seen::kNew;
}

void PushLedger::Arrived(uint64_t sequence, uint32_t block) {
  if (sequence != watermark_ + 1 || arrived_[block]) return;
  arrived_[block] = true;
  ++num_arrived_;
}

void PushLedger::Done(uint64_t sequence, uint32_t block, v1::Block::Fate fate, uint64_t staleness) {
  if (sequence != watermark_ + 1 || done_[block]) return;
  done_[block] = true;
  any_applied_ |= fate == v1::Block::APPLIED;
  any_late_ |= fate == v1::Block::LATE;
  any_non_finite_ |= fate == v1::Block::NON_FINITE;
  max_staleness_ = std::max(max_staleness_, staleness);
  if (++num_done_ < done_.size()) return;
  Count();
  const uint64_t incarnation = incarnation_;
  Begin(incarnation);
  watermark_ = sequence;
}

void PushLedger::Count() {
  if (any_non_finite_) {
    ++non_finite_;
    ++non_finite_in_a_row_;
    return;
  }
  non_finite_in_a_row_ = 0;
  if (any_applied_) {
    ++applied_;
    ++staleness_[Rounded(max_staleness_)];
  } else {
    ++late_;
  }
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
  return statistics;
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
