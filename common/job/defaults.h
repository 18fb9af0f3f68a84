// Every default of proto/job.proto, filled in once.
#ifndef CATCHMENT_COMMON_JOB_DEFAULTS_H_
#define CATCHMENT_COMMON_JOB_DEFAULTS_H_

#include "common/job/presets.h"
#include "proto/job.pb.h"

namespace catchment {

// Afterwards every optional field is set that means something for the job: beta1 stays unset for SGD, say.
// Filling a job that is filled changes nothing. Layers get their fields here, their names from validation.
void FillDefaults(const Preset& preset, v1::Job* job);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_DEFAULTS_H_
