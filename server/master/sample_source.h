// Where steps take their samples from: first those that were given back, then fresh ones, epoch after epoch,
// up to the end of the budget.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_SAMPLE_SOURCE_H_
#define CATCHMENT_SERVER_MASTER_SAMPLE_SOURCE_H_

#include <cstdint>
#include <optional>

#include "proto/checkpoint.pb.h"
#include "server/master/span.h"
#include "server/master/span_pool.h"

namespace catchment {

class SampleSource {
 public:
  // Begins where `from` says; a default MasterState is the beginning. `end`: where fresh samples end, if
  // ever.
  SampleSource(uint64_t samples_per_epoch, std::optional<Position> end, const v1::MasterState& from);

  // The next samples, at most so many, all of one epoch. None only when nothing is left.
  Step Take(uint64_t at_most);

  // They will be taken again, before fresh ones.
  void GiveBack(const Step& step) { pool_.Add(step); }

  bool empty() const { return pool_.empty() && FreshOfEpoch() == 0; }

  // Samples still to be taken. Only with an end.
  uint64_t remaining() const;

  // Samples taken and not given back, since the beginning of the job.
  uint64_t taken() const { return Linear(next_) - pool_.num_samples(); }

  uint64_t samples_per_epoch() const { return samples_per_epoch_; }
  const SpanPool& pool() const { return pool_; }
  Position next() const { return next_; }

 private:
  uint64_t Linear(const Position& at) const { return at.epoch * samples_per_epoch_ + at.position; }
  // Fresh samples that are left of the present epoch.
  uint64_t FreshOfEpoch() const;
  Span TakeFresh(uint64_t at_most);

  const uint64_t samples_per_epoch_;
  const std::optional<Position> end_;
  SpanPool pool_;
  Position next_;  // its position is always below samples_per_epoch_
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_SAMPLE_SOURCE_H_
