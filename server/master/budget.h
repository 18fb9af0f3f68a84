// What a job says of steps: how many samples each takes, how many make a version of the center, and how many
// there are in all.
#ifndef CATCHMENT_SERVER_MASTER_BUDGET_H_
#define CATCHMENT_SERVER_MASTER_BUDGET_H_

#include <cstdint>
#include <optional>

#include "proto/job.pb.h"
#include "server/master/span.h"

namespace catchment {

struct Pace {
  // Every step is one of all workers, as planned; otherwise each worker takes minibatches at its own pace.
  bool synchronous = false;
  uint64_t batch_size = 0;  // of one worker
  uint64_t workers = 0;     // Job.workers
  // Steps of one worker from one of its contributions to the next (common/job/push_period.h).
  uint64_t steps_per_version = 1;
  // Contributions of single workers that go into so many updates of the center, those that come too late for
  // theirs among them. Synchronous mode: one of each worker into one.
  uint64_t contributions = 1;
  uint64_t updates = 1;
  // A contribution is made at the start of a period, of the steps before it: the center at version v has the
  // steps of v - 1 periods.
  bool contributes_first = false;
};

// The job has its defaults filled in.
Pace PaceOf(const v1::Job& job);

struct Budget {
  // For epochs and samples: fresh samples end here. Samples are rounded up to whole minibatches (synchronous
  // mode: of all Job.workers), or to the end of the epoch.
  std::optional<Position> end;
  // For updates: steps of the job (synchronous mode), or minibatches.
  std::optional<uint64_t> steps;
  // In samples; for updates what is expected with Job.workers workers.
  uint64_t total_samples = 0;
};

Budget BudgetOf(const v1::Job& job, uint64_t train_samples);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_BUDGET_H_
