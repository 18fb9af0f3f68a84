#include "common/checkpoint/initial_weights.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/safetensors.h"

namespace catchment {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return shape.empty() ? "a scalar" : absl::StrJoin(shape, "x");
}

absl::Status CheckTensors(const SafetensorsFile& file, const ParameterLayout& layout) {
  for (const TensorSpec& tensor : layout.tensors()) {
    const TensorEntry* const entry = file.Find(tensor.name);
    if (entry == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), ": has no tensor \"", tensor.name,
                       "\", which the model has; tensors must have PyTorch's names"));
    }
    if (entry->shape != tensor.shape) {
      return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor \"", tensor.name, "\" is ",
                                                     ShapeText(entry->shape), ", but the model's is ",
                                                     ShapeText(tensor.shape)));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadPart(const SafetensorsFile& file, const TensorSpec& tensor, Range elements, float* out) {
  RETURN_IF_ERROR(file.Read(tensor.name, elements.begin, elements.size(), out));
  if (std::all_of(out, out + elements.size(), [](float value) { return std::isfinite(value); }))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": tensor \"", tensor.name, "\" has a NaN or an infinity"));
}

absl::Status Read(const std::string& path, const ParameterLayout& layout, Range range, float* out) {
  ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(path));
  RETURN_IF_ERROR(CheckTensors(*file, layout));
  for (size_t i = 0; i < layout.tensors().size(); ++i) {
    const Range tensor = layout.tensor(static_cast<int>(i));
    const Range part = {std::max(range.begin, tensor.begin), std::min(range.end, tensor.end)};
    if (part.size() <= 0) continue;
    RETURN_IF_ERROR(ReadPart(*file, layout.tensors()[i], {part.begin - tensor.begin, part.end - tensor.begin},
                             out + (part.begin - range.begin)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadInitialWeights(const std::string& path, const ParameterLayout& layout, Range range,
                                float* out) {
  const absl::Status status = Read(path, layout, range, out);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("model.initial_weights: ", status.message()));
}

}  // namespace catchment
