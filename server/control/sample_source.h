// The source of the samples of steps: first samples that were returned, then fresh ones, epoch by epoch, up
// to the end of the budget.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_SAMPLE_SOURCE_H_
#define CATCHMENT_SERVER_CONTROL_SAMPLE_SOURCE_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/job/algorithm_facts.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master_image.pb.h"
#include "server/control/span.h"
#include "server/control/span_pool.h"

namespace catchment {

class SampleSource {
 public:
  // Starts from `from`; a default MasterState is the beginning. Fresh samples end at `end`, if it is given.
  // `merges_last`: Pace.merges_last.
  SampleSource(uint64_t samples_per_epoch, std::optional<Position> end, bool merges_last,
               const v1::MasterState& from);

  // Takes up to `size` samples of one epoch; if last ones are merged, all samples that are left of it if they
  // are fewer than 2 * size. The result is empty only if no samples are left.
  Step Take(uint64_t size);

  // Puts samples back, which are taken again before fresh ones.
  void Return(const Step& step) { pool_.Add(step); }

  bool empty() const { return pool_.empty() && FreshOfEpoch() == 0; }

  // Returns the number of samples left to take. Requires an end.
  uint64_t remaining() const;

  // Returns the number of samples taken and not returned since the beginning of the job.
  uint64_t taken() const { return Linear(next_) - std::min(Linear(next_), pool_.num_samples()); }

  uint64_t samples_per_epoch() const { return samples_per_epoch_; }
  const SpanPool& pool() const { return pool_; }
  Position next() const { return next_; }

  v1::SampleSourceImage Save() const;
  void Restore(const v1::SampleSourceImage& image);

 private:
  uint64_t Linear(const Position& at) const { return at.epoch * samples_per_epoch_ + at.position; }
  // Returns the number of fresh samples left in the current epoch.
  uint64_t FreshOfEpoch() const;
  // Returns the number of samples left to take of the epoch that the next ones are of.
  uint64_t LeftOf(uint64_t epoch) const;
  Span TakeFresh(uint64_t at_most);

  const uint64_t samples_per_epoch_;
  const std::optional<Position> end_;
  const bool merges_last_;
  SpanPool pool_;
  Position next_;  // its position is always below samples_per_epoch_
};

struct Budget {
  // For budgets in epochs or samples: the end of the fresh samples. A budget in samples is rounded up to a
  // multiple of the batch size (in synchronous mode, of the batches of all Job.workers), or to the end of the
  // epoch.
  std::optional<Position> end;
  // For budgets in updates: steps of the job (synchronous mode), or minibatches (other modes).
  std::optional<uint64_t> steps;
  // The budget in samples; for budgets in updates, the number expected with Job.workers workers.
  uint64_t total_samples = 0;
};

// Returns the budget of a job whose defaults are filled in.
Budget BudgetOf(const v1::Job& job, uint64_t train_samples);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_SAMPLE_SOURCE_H_
