// Common parts of the master's tests: a clock, and jobs with all defaults filled in.
#ifndef CATCHMENT_TESTS_SERVER_CONTROL_TESTING_H_
#define CATCHMENT_TESTS_SERVER_CONTROL_TESTING_H_

#include <cstdint>
#include <string>

#include "proto/job.pb.h"
#include "tests/common/base/settable_clock.h"

namespace catchment {

struct JobOptions {
  bool synchronous = true;
  uint32_t workers = 1;
  uint32_t batch_size = 4;
  uint32_t push_period = 1;
  uint64_t epochs = 1;
  uint64_t every_updates = 1000;
  double every_seconds = 0;
};

inline v1::Job MakeJob(const JobOptions& options) {
  v1::Job job;
  job.set_name("test");
  v1::Consistency* consistency = job.mutable_algorithm()->mutable_consistency();
  if (options.synchronous) {
    consistency->mutable_synchronous();
  } else {
    consistency->mutable_asynchronous();
  }
  job.mutable_algorithm()->mutable_contribution()->mutable_gradient()->set_push_period(options.push_period);
  job.set_workers(options.workers);
  job.set_batch_size(options.batch_size);
  job.set_epochs(options.epochs);
  job.mutable_checkpoint()->set_every_updates(options.every_updates);
  job.mutable_checkpoint()->set_every_seconds(options.every_seconds);
  job.mutable_evaluation()->set_every_epochs(1);
  job.mutable_faults()->set_heartbeat_timeout_seconds(10);
  job.mutable_faults()->set_non_finite_limit(10);
  return job;
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_SERVER_CONTROL_TESTING_H_
