#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/base/text.h"
#include "common/job/checks.h"
#include "common/job/compensation_kinds.h"
#include "common/job/contribution_kinds.h"
#include "common/job/parameter_groups.h"

namespace catchment {
namespace {

// Checks the values of a group. `optimizer`: the one that applies gradients.
void CheckSettings(const v1::ParameterGroup& group, const v1::Optimizer& optimizer, const std::string& path,
                   Problems* problems) {
  const double decay = group.has_weight_decay() ? group.weight_decay() : optimizer.weight_decay();
  const double factor = group.has_learning_rate_factor() ? group.learning_rate_factor() : 1;
  problems->Require(!group.has_weight_decay() || (decay >= 0 && std::isfinite(decay)), path + ".weight_decay",
                    decay, "must be a number, 0 or above");
  problems->Require(factor > 0 && std::isfinite(factor), path + ".learning_rate_factor", factor,
                    "must be a number above 0; for parameters that never change set frozen: true instead");
  if (group.frozen() && (group.has_weight_decay() || group.has_learning_rate_factor())) {
    problems->Add(path + ".frozen", Reason::kConflict,
                  "is true, so that nothing changes these parameters: leave out weight_decay and "
                  "learning_rate_factor, or frozen");
  }
  if (optimizer.kind() == v1::Optimizer::ADAMW && optimizer.learning_rate() * factor * decay >= 1) {
    problems->Add(path, Reason::kConflict,
                  absl::StrCat("has weight_decay ", decay, " and the learning rate ",
                               Short(optimizer.learning_rate() * factor),
                               ": one step removes all of the weights; their product must be below 1"));
  }
}

// Checks that the algorithm can honour a group.
void CheckAlgorithmHas(const v1::Algorithm& algorithm, const v1::ParameterGroup& group,
                       const std::string& path, Problems* problems) {
  const v1::Contribution& contribution = algorithm.contribution();
  if (!KindOf(contribution).has_weight_decay && group.weight_decay() != 0) {
    problems->Add(path + ".weight_decay", Reason::kConflict,
                  absl::StrCat("does not belong to contribution ", KindName(contribution),
                               ", which has no weight decay; set it to 0, or choose another preset"));
  }
  if (!group.has_learning_rate_factor() || group.learning_rate_factor() == 1) return;
  const auto check = [&](const auto& axis) {
    if (!KindOf(axis).needs_one_rate) return;
    problems->Add(
        path + ".learning_rate_factor", Reason::kConflict,
        absl::StrCat("cannot be combined with ", KindName(axis),
                     ", which compares the center's moves with steps of one learning rate; leave it "
                     "out, or choose another preset"));
  };
  check(contribution);
  check(algorithm.compensation());
}

std::string Examples(const std::vector<TensorSpec>& tensors) {
  constexpr size_t kShown = 6;
  const auto shown = absl::MakeConstSpan(tensors).subspan(0, kShown);
  return absl::StrCat(
      absl::StrJoin(shown, ", ", [](std::string* text, const TensorSpec& t) { *text += t.name; }),
      tensors.size() > kShown ? ", ..." : "");
}

// Checks that each pattern matches a tensor, and that each group has one.
void CheckNames(const v1::Optimizer& optimizer, const std::vector<TensorSpec>& tensors, Problems* problems) {
  std::set<int> used;
  bool trains = false;
  for (const TensorSpec& tensor : tensors) {
    const int group = GroupOf(optimizer, tensor.name);
    used.insert(group);
    trains |= group < 0 || !optimizer.groups(group).frozen();
  }
  if (!trains) {
    problems->Add("optimizer.groups", Reason::kConflict,
                  "freeze every parameter of the model, so nothing would be trained; leave some out");
  }
  for (int g = 0; g < optimizer.groups_size(); ++g) {
    const std::string path = absl::StrCat("optimizer.groups[", g, "]");
    bool matches_all = true;
    for (int n = 0; n < optimizer.groups(g).names_size(); ++n) {
      const std::string& pattern = optimizer.groups(g).names(n);
      const bool matches = std::any_of(tensors.begin(), tensors.end(), [&pattern](const TensorSpec& tensor) {
        return MatchesName(pattern, tensor.name);
      });
      if (matches) continue;
      matches_all = false;
      problems->Add(absl::StrCat(path, ".names[", n, "]"), Reason::kUnknown,
                    absl::StrCat("is \"", pattern, "\", which matches no parameter; the model has ",
                                 Examples(tensors)));
    }
    if (matches_all && !used.contains(g)) {
      problems->Add(path, Reason::kUnused,
                    "has no parameter: earlier groups have all that its patterns match, and the first group "
                    "counts; place it before them, or remove it");
    }
  }
}

}  // namespace

void CheckGroups(const v1::Job& job, const std::vector<TensorSpec>& tensors, Problems* problems) {
  if (job.algorithm().contribution().pseudo_gradient().local_optimizer().groups_size() > 0) {
    problems->Add("algorithm.contribution.pseudo_gradient.local_optimizer.groups", Reason::kUnused,
                  "has the groups of the local steps at the wrong place: set optimizer.groups, which are "
                  "those of the optimizer that applies gradients");
  }
  const v1::Optimizer& optimizer = job.optimizer();
  if (optimizer.groups().empty()) return;
  if (job.model().external().local_steps()) {
    problems->Add("optimizer.groups", Reason::kConflict,
                  "cannot be combined with model.external.local_steps: the program makes its steps with its "
                  "own optimizer, whose own groups count; leave them out");
  }
  bool have_names = true;
  for (int g = 0; g < optimizer.groups_size(); ++g) {
    const std::string path = absl::StrCat("optimizer.groups[", g, "]");
    const v1::ParameterGroup& group = optimizer.groups(g);
    CheckSettings(group, GradientOptimizer(job), path, problems);
    CheckAlgorithmHas(job.algorithm(), group, path, problems);
    if (!group.names().empty()) continue;
    have_names = false;
    problems->Add(path + ".names", Reason::kMissing,
                  "is required: patterns of parameters' names, such as \"*.bias\"");
  }
  // A synthetic model may stand for another one of its size, and learns nothing.
  const bool knows_names = !tensors.empty() && !job.model().has_synthetic();
  if (have_names && knows_names) CheckNames(optimizer, tensors, problems);
}

}  // namespace catchment
