#include "common/job/job_layout.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "optim/optimizer.h"

namespace catchment {

absl::StatusOr<ParameterLayout> LayoutOf(const v1::Job& job, std::vector<TensorSpec> tensors, int num_servers,
                                         std::optional<int64_t> values_in_block) {
  const int64_t block_size = values_in_block.value_or(int64_t{job.block_kib()} * 1024 / sizeof(float));
  if (!NeedsWholeTensors(job.optimizer())) {
    return ParameterLayout::Create(std::move(tensors), num_servers, block_size, Cuts::kAnywhere);
  }
  auto layout = ParameterLayout::Create(std::move(tensors), num_servers, block_size, Cuts::kBetweenTensors);
  if (layout.ok()) return layout;
  return absl::InvalidArgumentError(absl::StrCat(
      "optimizer.kind: is ", v1::Optimizer::Kind_Name(job.optimizer().kind()),
      ", which takes norms over whole tensors: ", layout.status().message(), ", or another optimizer"));
}

}  // namespace catchment
