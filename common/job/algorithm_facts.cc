#include "common/job/algorithm_facts.h"

#include <glog/logging.h>

#include <algorithm>

namespace catchment {

Pace PaceOf(const v1::Job& job) {
  Pace pace;
  const v1::Consistency& consistency = job.algorithm().consistency();
  pace.synchronous = IsSynchronous(consistency);
  pace.batch_size = job.batch_size();
  pace.workers = job.workers();
  pace.steps_per_version = PushPeriod(job.algorithm().contribution());
  pace.contributes_first = ContributesFirst(job.algorithm().contribution());
  if (consistency.groups() > 0) {
    pace.contributions = pace.workers;
    pace.updates = consistency.groups();
  } else if (consistency.softsync() > 0) {
    pace.contributions = std::max<uint64_t>(1, pace.workers / consistency.softsync());
  }
  CHECK_GT(pace.batch_size, 0u);
  CHECK_GT(pace.workers, 0u);
  CHECK_GT(pace.steps_per_version, 0u);
  return pace;
}

}  // namespace catchment
