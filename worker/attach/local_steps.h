// Whether a job can be trained by a program that makes its local steps itself (proto/attach.proto,
// Hello.local_steps).
#ifndef CATCHMENT_WORKER_ATTACH_LOCAL_STEPS_H_
#define CATCHMENT_WORKER_ATTACH_LOCAL_STEPS_H_

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace catchment {

// Returns ok where a worker's step between two exchanges is w -= g, g being what the program reports. `job`
// is complete and valid. InvalidArgument says what to set.
absl::Status CheckLocalSteps(const v1::Job& job);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ATTACH_LOCAL_STEPS_H_
