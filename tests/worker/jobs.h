// Jobs for the tests of workers.
#ifndef CATCHMENT_TESTS_WORKER_JOBS_H_
#define CATCHMENT_TESTS_WORKER_JOBS_H_

#include <glog/logging.h>

#include "absl/status/statusor.h"
#include "common/job/validate.h"
#include "proto/job.pb.h"

namespace catchment {

// Returns a job of two steps with a synthetic model of four parameters, with its defaults filled in.
inline v1::Job SmallestJob() {
  v1::Job job;
  job.set_batch_size(4);
  job.set_epochs(1);
  job.mutable_data()->mutable_synthetic()->set_samples(8);
  job.mutable_model()->mutable_synthetic()->set_parameters(4);
  const absl::StatusOr<v1::Job> filled = FillDefaultsAndValidate(job);
  CHECK(filled.ok()) << filled.status();
  return *filled;
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_WORKER_JOBS_H_
