// The trained weights in a file that PyTorch and other programs can read.
#ifndef CATCHMENT_COMMON_CHECKPOINT_MODEL_FILE_H_
#define CATCHMENT_COMMON_CHECKPOINT_MODEL_FILE_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/safetensors.h"
#include "common/job/parameter_layout.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"

namespace catchment {

// Information about a model's weights.
struct ModelFacts {
  // Stored in the metadata, as "catchment.evaluation", "catchment.samples", "catchment.test_loss" and
  // "catchment.test_accuracy".
  std::optional<v1::BestState> score;
  // Statistics of batch_norm with these weights, stored as tensors NAME.running_mean and NAME.running_var.
  std::vector<v1::Statistic> statistics;
};

// Writes a safetensors file with PyTorch's tensor names and shapes and with the job in its metadata, as
// "catchment.job", from weights that arrive one after another, so that they need not be in memory together.
// Errors: those of SafetensorsWriter. Threads: not thread-safe.
class ModelWriter {
 public:
  static absl::StatusOr<std::unique_ptr<ModelWriter>> Create(const std::string& path, const v1::Job& job,
                                                             const ParameterLayout& layout, ModelFacts facts);
  // Appends the next values of the flat vector.
  absl::Status Add(absl::Span<const float> weights) { return file_->Add(weights); }
  // Completes the file, to which the whole vector has been added.
  absl::Status Commit();

 private:
  ModelWriter(std::unique_ptr<SafetensorsWriter> file, std::vector<v1::Statistic> statistics)
      : file_(std::move(file)), statistics_(std::move(statistics)) {}

  const std::unique_ptr<SafetensorsWriter> file_;
  const std::vector<v1::Statistic> statistics_;
};

// Writes the file from `weights`, the whole flat vector.
absl::Status WriteModel(const std::string& path, const v1::Job& job, const ParameterLayout& layout,
                        absl::Span<const float> weights, const ModelFacts& facts = {});

// Returns the score in the file. NotFound if there is no file, or no score in it; InvalidArgument if the file
// is damaged or has other tensors than `layout`.
absl::StatusOr<v1::BestState> ReadModelScore(const std::string& path, const ParameterLayout& layout);

// Returns InvalidArgument, which names the statistic, if one of them cannot be stored with a model's weights:
// it is named like one of `tensors`, is not a running mean or variance, is there twice, or has another number
// of values than its layer has channels. `external`: the model is a program's (model.external), which may
// have layers of batch norm without weights.
absl::Status CheckStatistics(const std::vector<TensorSpec>& tensors, bool external,
                             absl::Span<const v1::Statistic* const> statistics);

// Reads values range.begin .. range.end-1 of the flat parameter vector to out[0 .. range.size()-1]. Ignores
// tensors of the file that are not in `layout`. Errors: InvalidArgument if any tensor of the model is missing
// in the file or has another shape there, or if a value in the range is NaN or infinite; errors of
// SafetensorsFile. All name model.initial_weights.
absl::Status ReadInitialWeights(const std::string& path, const ParameterLayout& layout, Range range,
                                float* out);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_MODEL_FILE_H_
