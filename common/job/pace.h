// What a job says about steps: how many samples each takes, and how many contributions make an update of the
// center.
#ifndef CATCHMENT_COMMON_JOB_PACE_H_
#define CATCHMENT_COMMON_JOB_PACE_H_

#include <cstdint>

#include "proto/job.pb.h"

namespace catchment {

struct Pace {
  // True: all workers take every step together, as planned. False: each worker takes minibatches at its own
  // pace.
  bool synchronous = false;
  uint64_t batch_size = 0;  // of one worker
  uint64_t workers = 0;     // Job.workers
  // Steps of one worker from one of its contributions to the next (common/job/push_period.h).
  uint64_t steps_per_version = 1;
  // `contributions` contributions of single workers, those that come too late for their update included, make
  // `updates` updates of the center. Synchronous mode: one contribution of each worker makes one update.
  uint64_t contributions = 1;
  uint64_t updates = 1;
  // A contribution is made at the start of a period, from the steps before it: the center at version v
  // contains the steps of v - 1 periods.
  bool contributes_first = false;
};

// Returns the pace of a job whose defaults are filled in.
Pace PaceOf(const v1::Job& job);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_PACE_H_
