// The total number of samples or steps that a job trains with.
#ifndef CATCHMENT_SERVER_CONTROL_BUDGET_H_
#define CATCHMENT_SERVER_CONTROL_BUDGET_H_

#include <cstdint>
#include <optional>

#include "common/job/algorithm_facts.h"
#include "proto/job.pb.h"
#include "server/control/span.h"

namespace catchment {

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

#endif  // CATCHMENT_SERVER_CONTROL_BUDGET_H_
