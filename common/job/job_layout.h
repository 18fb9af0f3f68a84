// The layout of a job's parameters. Servers, workers and the command all take it from here, so that they
// split the parameters in the same way.
#ifndef CATCHMENT_COMMON_JOB_JOB_LAYOUT_H_
#define CATCHMENT_COMMON_JOB_JOB_LAYOUT_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/parameter_layout.h"
#include "proto/job.pb.h"

namespace catchment {

// Returns PseudoGradient.fragments; 1 with other contributions.
int FragmentsOf(const v1::Job& job);

// Returns where parameters may be split between blocks, servers and fragments: between tensors if the
// optimizer uses norms over whole tensors (NeedsWholeTensors).
Cuts CutsOf(const v1::Job& job);

// Returns the layout of `tensors`, those of the job's model. `job` is complete and valid
// (common/job/validate.h). `values_in_block` overrides the job's block_kib. Errors: InvalidArgument, as from
// ParameterLayout::Create, naming the field that asks for whole tensors.
absl::StatusOr<ParameterLayout> LayoutOf(const v1::Job& job, std::vector<TensorSpec> tensors, int num_servers,
                                         std::optional<int64_t> values_in_block = std::nullopt);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_JOB_LAYOUT_H_
