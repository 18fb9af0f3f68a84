// Loads the samples of a job. A new source is one file beside mnist.h and one case in load_data.cc.
#ifndef CATCHMENT_WORKER_DATA_LOAD_DATA_H_
#define CATCHMENT_WORKER_DATA_LOAD_DATA_H_

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/data_paths.h"
#include "worker/data/dataset.h"

namespace catchment {

// Loads the data of `job`, which is complete and valid (common/job/validate.h), or names no source.
// Errors: InvalidArgument if the data names no source; those of the source (mnist.h, drawn_digits.h,
// table/table.h).
absl::StatusOr<DataSets> LoadData(const v1::Job& job, const DataPaths& paths);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_LOAD_DATA_H_
