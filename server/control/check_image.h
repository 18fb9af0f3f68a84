// Checks that a master can continue from an image.
#ifndef CATCHMENT_SERVER_CONTROL_CHECK_IMAGE_H_
#define CATCHMENT_SERVER_CONTROL_CHECK_IMAGE_H_

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "proto/master_image.pb.h"

namespace catchment {

// Returns InvalidArgument for an image that no master of the job can have written: numbers out of range,
// samples that are assigned twice, members that are there twice, leases of plans that are not there. `job`
// has its defaults filled in. An image that passes is small enough to be restored, and the master that is
// restored from it (Master::Restore) keeps its invariants whatever it is then asked.
absl::Status CheckMasterImage(const v1::MasterImage& image, const v1::Job& job, int num_shards);

// The same for all that a standby keeps of a master, of the run `run_id`.
absl::Status CheckMasterCopy(const v1::MasterCopy& copy, const v1::Job& job, int num_shards, uint64_t run_id);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_CHECK_IMAGE_H_
