#include "common/job/job_layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

// A message has 8 bytes for each value that TOP_K keeps, and 4 for each value in other codecs.
absl::Status CheckTopK(const v1::Compression& compression, const ParameterLayout& layout) {
  const double most = 0.5 * ParameterLayout::kLargestWholeTensor / layout.most_in_block();
  if (compression.push() != v1::Compression::TOP_K || compression.top_k_fraction() <= most)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("compression.top_k_fraction: is ", compression.top_k_fraction(), "; with a block of ",
                   layout.most_in_block(), " values, at most ", most, " of them fit into a message"));
}

}  // namespace

int FragmentsOf(const v1::Job& job) {
  const v1::Contribution& contribution = job.algorithm().contribution();
  return contribution.has_pseudo_gradient()
             ? static_cast<int>(std::max(1u, contribution.pseudo_gradient().fragments()))
             : 1;
}

Cuts CutsOf(const v1::Job& job) {
  return NeedsWholeTensors(job.optimizer()) ? Cuts::kBetweenTensors : Cuts::kAnywhere;
}

absl::StatusOr<ParameterLayout> LayoutOf(const v1::Job& job, std::vector<TensorSpec> tensors, int num_servers,
                                         std::optional<int64_t> values_in_block) {
  const int64_t block_size = values_in_block.value_or(int64_t{job.block_kib()} * 1024 / sizeof(float));
  const int fragments = FragmentsOf(job);
  const Cuts cuts = CutsOf(job);
  auto layout = ParameterLayout::Create(tensors, num_servers, block_size, cuts, fragments);
  if (layout.ok()) {
    RETURN_IF_ERROR(CheckTopK(job.compression(), *layout));
    return layout;
  }
  if (fragments > 1 && ParameterLayout::Create(std::move(tensors), num_servers, block_size, cuts).ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("algorithm.contribution.pseudo_gradient.fragments: ", layout.status().message()));
  }
  if (cuts == Cuts::kAnywhere) return layout;
  return absl::InvalidArgumentError(absl::StrCat(
      "optimizer.kind: is ", v1::Optimizer::Kind_Name(job.optimizer().kind()),
      ", which takes norms over whole tensors: ", layout.status().message(), ", or another optimizer"));
}

}  // namespace catchment
