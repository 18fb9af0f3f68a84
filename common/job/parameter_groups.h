// The groups of a job's parameters (Optimizer.groups): who belongs to which, and whom they change.
#ifndef CATCHMENT_COMMON_JOB_PARAMETER_GROUPS_H_
#define CATCHMENT_COMMON_JOB_PARAMETER_GROUPS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/job/parameter_layout.h"
#include "optim/optimizer.h"
#include "proto/job.pb.h"

namespace catchment {

// Returns true if `pattern`, of ParameterGroup.names, matches the name of a tensor.
bool MatchesName(const std::string& pattern, const std::string& name);

// Returns the index of the first group that has the tensor; -1 if none has.
int GroupOf(const v1::Optimizer& optimizer, const std::string& name);

// Returns the optimizer that applies gradients, with the job's groups: that of the servers, or the local one
// of workers that send pseudo-gradients.
v1::Optimizer GradientOptimizer(const v1::Job& job);

// Returns the optimizer by which the servers apply contributions. With pseudo-gradients, its groups only say
// what is frozen.
v1::Optimizer CenterOptimizer(const v1::Job& job);

// Returns the layout's tensors with their groups, for MakeOptimizer; none if there are no groups or no
// layout.
std::vector<GroupedTensor> GroupTensors(const v1::Optimizer& optimizer, const ParameterLayout* layout);

// The factors of the learning rate, for steps that are made without an Optimizer.
class RateFactors {
 public:
  // Without a layout, all `size` values have the factor 1.
  RateFactors(const v1::Optimizer& optimizer, const ParameterLayout* layout, int64_t size);

  // Calls apply(range, factor) for the parts of `values`; the factor is 0 where they are frozen, and only
  // there.
  template <typename Apply>
  void ForEach(Range values, Apply apply) const {
    int64_t begin = 0;
    for (const Part& part : parts_) {
      const Range common = {std::max(begin, values.begin), std::min(part.end, values.end)};
      if (common.begin < common.end) apply(common, part.factor);
      begin = part.end;
    }
  }
  bool has_frozen() const;

 private:
  struct Part {
    int64_t end = 0;  // it begins at the end of the one before
    float factor = 1;
  };
  std::vector<Part> parts_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_PARAMETER_GROUPS_H_
