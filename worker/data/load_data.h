// From a job's `data` to the samples. A new source is one file beside mnist.h and one line here.
#ifndef CATCHMENT_WORKER_DATA_LOAD_DATA_H_
#define CATCHMENT_WORKER_DATA_LOAD_DATA_H_

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/data_paths.h"
#include "worker/data/dataset.h"

namespace catchment {

// `job` is complete and valid (common/job/validate.h), or its data names no source.
// Errors: InvalidArgument where the data names no source; the source's own (mnist.h, drawn_digits.h,
// table.h).
absl::StatusOr<DataSets> LoadData(const v1::Job& job, const DataPaths& paths);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_LOAD_DATA_H_
