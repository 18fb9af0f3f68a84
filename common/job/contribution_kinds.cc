#include "common/job/contribution_kinds.h"

#include "absl/strings/str_cat.h"
#include "optim/optimizer.h"

namespace catchment {
const ContributionKind& KindOf(const v1::Contribution& contribution) {
  for (const ContributionKind* kind : kContributionKinds) {
    if (kind->kind == contribution.kind_case()) return *kind;
  }
  return kGradientContribution;
}

google::protobuf::Message* ServersOptimizer(v1::Job* job) { return job->mutable_optimizer(); }

int OptimizerVectors(const v1::Optimizer& optimizer) { return MakeOptimizer(optimizer)->num_states(); }

void CheckServersAreSgd(const v1::Optimizer& optimizer, const std::string& contribution, Problems* problems) {
  const std::string why = absl::StrCat(" with contribution ", contribution,
                                       ", whose workers have their own momentum: momentum on the servers "
                                       "would count it twice; the workers' is algorithm.contribution.",
                                       contribution, ".momentum");
  if (optimizer.kind() != v1::Optimizer::SGD) {
    problems->Add("optimizer.kind", Reason::kConflict,
                  absl::StrCat("is ", v1::Optimizer::Kind_Name(optimizer.kind()), "; must be SGD", why));
  } else if (optimizer.momentum() != 0) {
    problems->Add("optimizer.momentum", Reason::kConflict,
                  absl::StrCat("is ", optimizer.momentum(), "; must be 0", why));
  }
}

}  // namespace catchment
