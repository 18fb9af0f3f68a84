// How fast each worker goes, and what its training thread spends its time on, from one look to the next.
//
// Progress comes with heartbeats and leases, not by the clock: the time is the training thread's own, which
// is all in the parts that Progress has (proto/master.proto). Threads: one.
#ifndef CATCHMENT_SERVER_OUTPUTS_WORKER_RATES_H_
#define CATCHMENT_SERVER_OUTPUTS_WORKER_RATES_H_

#include <nlohmann/json.hpp>

#include "proto/master.pb.h"

namespace catchment {

class WorkerRates {
 public:
  // An object for each member: worker, samples_per_second, compute_share, push_share, pull_share, data_share,
  // since the look before, or its registration; null where nothing was heard of it meanwhile.
  nlohmann::ordered_json Look(const v1::JobStatus& status);

 private:
  v1::JobStatus last_;  // its workers alone
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OUTPUTS_WORKER_RATES_H_
