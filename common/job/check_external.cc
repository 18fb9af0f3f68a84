#include <algorithm>
#include <cstdint>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/job/checks.h"
#include "common/job/parameter_layout.h"

namespace catchment {
namespace {

void CheckTensors(const v1::ExternalModel& model, Problems* problems) {
  std::set<std::string> names;
  int64_t total = 0;
  for (int i = 0; i < model.tensors_size(); ++i) {
    const v1::ExternalTensor& tensor = model.tensors(i);
    const std::string path = absl::StrCat("model.external.tensors[", i, "]");
    if (tensor.name().empty()) problems->Add(path + ".name", Reason::kMissing, "is required");
    problems->Require(names.insert(tensor.name()).second, path + ".name", tensor.name(),
                      "must be unique; list a parameter that two modules share once");
    problems->Require(tensor.name() != "__metadata__", path + ".name", tensor.name(),
                      "files of weights reserve this name; rename the parameter");
    for (const int64_t dimension : tensor.shape()) problems->AtLeast<int64_t>(1, path + ".shape", dimension);
    total += TensorSpec{tensor.name(), {tensor.shape().begin(), tensor.shape().end()}}.size();
  }
  if (total > kMaxParameters) {
    problems->Add(
        "model.external.tensors", Reason::kRange,
        absl::StrCat("have more than ", kMaxParameters, " values together (2^40), which is the most"));
  }
}

}  // namespace

void CheckExternal(const v1::Job& job, Problems* problems) {
  if (!job.data().has_external()) {
    problems->Add(
        "model.external", Reason::kNeeds,
        "its program also loads the samples; use it only with data { external { train_samples: N } }");
    return;
  }
  if (!job.model().has_external()) {
    problems->Add("data.external", Reason::kNeeds,
                  "has samples that a program loads; use it only with model { external { ... } }");
    return;
  }
  CheckTensors(job.model().external(), problems);
  if (job.model().initial_weights().empty()) {
    problems->Add(
        "model.initial_weights", Reason::kMissing,
        "is required with model.external: a safetensors file with the weights that training starts from");
  }
  const uint64_t samples = job.data().external().train_samples();
  problems->Within<uint64_t>(1, UINT32_MAX, "data.external.train_samples", samples);
  problems->Require(job.batch_size() <= std::max<uint64_t>(1, samples), "batch_size", job.batch_size(),
                    absl::StrCat("must not be above data.external.train_samples, ", samples));
}

}  // namespace catchment
