// The trained weights as one file that PyTorch and others read.
#ifndef CATCHMENT_COMMON_CHECKPOINT_MODEL_FILE_H_
#define CATCHMENT_COMMON_CHECKPOINT_MODEL_FILE_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/parameter_layout.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"

namespace catchment {

// What is known of a model's weights beside their values.
struct ModelFacts {
  // Goes into the metadata, under "catchment.evaluation", "catchment.samples", "catchment.test_loss" and
  // "catchment.test_accuracy".
  std::optional<v1::BestState> score;
  // Of batch_norm, with these weights: tensors NAME.running_mean and NAME.running_var.
  std::vector<v1::Statistic> statistics;
};

// A safetensors file with PyTorch's tensor names and shapes, and the job in its metadata, under
// "catchment.job". `weights` is the whole flat vector. Errors: those of WriteSafetensors.
absl::Status WriteModel(const std::string& path, const v1::Job& job, const ParameterLayout& layout,
                        absl::Span<const float> weights, const ModelFacts& facts = {});

// The score that the file was written with. NotFound: there is no file, or it has none. InvalidArgument for a
// file that is damaged, or has other tensors than `layout`.
absl::StatusOr<v1::BestState> ReadModelScore(const std::string& path, const ParameterLayout& layout);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_MODEL_FILE_H_
