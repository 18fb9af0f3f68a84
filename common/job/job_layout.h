// The layout of a job's parameters: the one place from which servers, workers and the command have it, so
// that all of them cut alike.
#ifndef CATCHMENT_COMMON_JOB_JOB_LAYOUT_H_
#define CATCHMENT_COMMON_JOB_JOB_LAYOUT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/parameter_layout.h"
#include "proto/job.pb.h"

namespace catchment {

// `job` is complete and valid (common/job/validate.h), and `tensors` are its model's. Tensors are whole for
// LARS and LAMB, which take norms over them. InvalidArgument as of ParameterLayout::Create, naming the field
// that asks for whole tensors.
absl::StatusOr<ParameterLayout> LayoutOf(const v1::Job& job, std::vector<TensorSpec> tensors,
                                         int num_servers);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_JOB_LAYOUT_H_
