// How many samples or steps a job trains with in all.
#ifndef CATCHMENT_SERVER_MASTER_BUDGET_H_
#define CATCHMENT_SERVER_MASTER_BUDGET_H_

#include <cstdint>
#include <optional>

#include "common/job/algorithm_facts.h"
#include "proto/job.pb.h"
#include "server/master/span.h"

namespace catchment {

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
