#include "common/checkpoint/model_file.h"

#include <vector>

#include "common/checkpoint/safetensors.h"
#include "common/job/job_text.h"

namespace catchment {

absl::Status WriteModel(const std::string& path, const v1::Job& job, const ParameterLayout& layout,
                        absl::Span<const float> weights) {
  std::vector<TensorView> views;
  for (size_t i = 0; i < layout.tensors().size(); ++i) {
    const TensorSpec& tensor = layout.tensors()[i];
    const Range range = layout.tensor(static_cast<int>(i));
    views.push_back({tensor.name, tensor.shape, weights.subspan(range.begin, range.size())});
  }
  // "format" tells Hugging Face's loaders whose names and layouts these are.
  return WriteSafetensors(path, views, {{"format", "pt"}, {"catchment.job", JobText(job)}});
}

}  // namespace catchment
