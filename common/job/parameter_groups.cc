#include "common/job/parameter_groups.h"

#include <fnmatch.h>

namespace catchment {

bool MatchesName(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

int GroupOf(const v1::Optimizer& optimizer, const std::string& name) {
  for (int g = 0; g < optimizer.groups_size(); ++g) {
    const auto& patterns = optimizer.groups(g).names();
    const auto matches = [&name](const std::string& pattern) { return MatchesName(pattern, name); };
    if (std::any_of(patterns.begin(), patterns.end(), matches)) return g;
  }
  return -1;
}

v1::Optimizer GradientOptimizer(const v1::Job& job) {
  const v1::Contribution& contribution = job.algorithm().contribution();
  if (!contribution.has_pseudo_gradient()) return job.optimizer();
  v1::Optimizer local = contribution.pseudo_gradient().local_optimizer();
  *local.mutable_groups() = job.optimizer().groups();
  return local;
}

v1::Optimizer CenterOptimizer(const v1::Job& job) {
  v1::Optimizer center = job.optimizer();
  if (!job.algorithm().contribution().has_pseudo_gradient()) return center;
  for (v1::ParameterGroup& group : *center.mutable_groups()) {
    group.clear_weight_decay();
    group.clear_learning_rate_factor();
  }
  return center;
}

std::vector<GroupedTensor> GroupTensors(const v1::Optimizer& optimizer, const ParameterLayout* layout) {
  std::vector<GroupedTensor> tensors;
  if (layout == nullptr || optimizer.groups().empty()) return tensors;
  for (size_t t = 0; t < layout->tensors().size(); ++t) {
    tensors.push_back(
        {layout->tensor(static_cast<int>(t)).end, GroupOf(optimizer, layout->tensors()[t].name)});
  }
  return tensors;
}

RateFactors::RateFactors(const v1::Optimizer& optimizer, const ParameterLayout* layout, int64_t size) {
  for (const GroupedTensor& tensor : GroupTensors(optimizer, layout)) {
    parts_.push_back({.end = tensor.end});
    if (tensor.group < 0) continue;
    const v1::ParameterGroup& group = optimizer.groups(tensor.group);
    if (group.has_learning_rate_factor()) parts_.back().factor = group.learning_rate_factor();
    if (group.frozen()) parts_.back().factor = 0;
  }
  if (parts_.empty()) parts_.push_back({.end = size});
}

bool RateFactors::has_frozen() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.factor == 0; });
}

}  // namespace catchment
