// The trained weights as one file that PyTorch and others read.
#ifndef CATCHMENT_COMMON_CHECKPOINT_MODEL_FILE_H_
#define CATCHMENT_COMMON_CHECKPOINT_MODEL_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/parameter_layout.h"
#include "proto/job.pb.h"

namespace catchment {

// A safetensors file with PyTorch's tensor names and shapes, and the job in its metadata, under "catchment.job".
// `weights` is the whole flat vector. Errors: those of WriteSafetensors.
absl::Status WriteModel(const std::string& path, const v1::Job& job, const ParameterLayout& layout,
                        absl::Span<const float> weights);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_MODEL_FILE_H_
