#include "common/job/parameter_groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/terminal.h"
#include "cli/job/job_explanation.h"
#include "common/base/text.h"
#include "common/job/contribution_kinds.h"

namespace catchment {
namespace {

constexpr int kShownNames = 3;

struct GroupSize {
  int64_t tensors = 0;
  int64_t parameters = 0;
};

// Returns the size of each group, and last that of the parameters without a group.
std::vector<GroupSize> SizesOf(const JobFacts& facts) {
  const v1::Optimizer& optimizer = facts.job().optimizer();
  std::vector<GroupSize> sizes(optimizer.groups_size() + 1);
  for (const TensorSpec& tensor : facts.layout().tensors()) {
    const int group = GroupOf(optimizer, tensor.name);
    GroupSize& size = group < 0 ? sizes.back() : sizes[group];
    ++size.tensors;
    size.parameters += tensor.size();
  }
  return sizes;
}

std::string NamesOf(const v1::ParameterGroup& group) {
  const int shown = std::min(group.names_size(), kShownNames);
  const std::string names = absl::StrJoin(group.names().begin(), group.names().begin() + shown, " ");
  if (shown == group.names_size()) return names;
  return absl::StrCat(names, " and ", group.names_size() - shown, " more");
}

}  // namespace

std::string ExplainGroups(const JobFacts& facts) {
  const v1::Optimizer own = GradientOptimizer(facts.job());
  if (own.groups().empty()) return "";
  const bool decays = KindOf(facts.job().algorithm().contribution()).has_weight_decay;
  const auto decay = [&](float value) { return decays ? Short(value) : ""; };
  const std::vector<GroupSize> sizes = SizesOf(facts);
  Table table;
  table.Add({"group", "tensors", "parameters", "weight decay", "learning rate", "names"});
  for (int g = 0; g < own.groups_size(); ++g) {
    const v1::ParameterGroup& group = own.groups(g);
    const float factor = group.has_learning_rate_factor() ? group.learning_rate_factor() : 1;
    table.Add(
        {absl::StrCat(g), Count(sizes[g].tensors), Count(sizes[g].parameters),
         group.frozen() ? "" : decay(group.has_weight_decay() ? group.weight_decay() : own.weight_decay()),
         group.frozen() ? "frozen" : absl::StrCat("times ", Short(factor)), NamesOf(group)});
  }
  if (sizes.back().tensors > 0) {
    table.Add({"none", Count(sizes.back().tensors), Count(sizes.back().parameters), decay(own.weight_decay()),
               "times 1", ""});
  }
  return absl::StrCat("groups of parameters\n", table.Print(), "\n");
}

nlohmann::ordered_json GroupsToJson(const JobFacts& facts) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  const v1::Optimizer& optimizer = facts.job().optimizer();
  const std::vector<GroupSize> sizes = SizesOf(facts);
  for (int g = 0; g < optimizer.groups_size(); ++g) {
    groups.push_back(SettingsToJson(optimizer.groups(g)));
    groups.back()["tensors"] = sizes[g].tensors;
    groups.back()["parameters"] = sizes[g].parameters;
  }
  return groups;
}

}  // namespace catchment
