#include "server/shard/shard_contents.h"

#include <glog/logging.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/model_file.h"
#include "common/job/algorithm_facts.h"
#include "common/job/data_sources.h"
#include "common/job/initializer.h"
#include "common/job/model_shapes.h"
#include "optim/optimizer.h"
#include "server/rules/rule.h"

namespace catchment {
namespace {

// Returns true if the states of `a` can be used by `b`: a vector that only `b` keeps begins at zero.
bool HaveSameStates(const v1::Optimizer& a, const v1::Optimizer& b) {
  return a.kind() == b.kind() && a.centered() == b.centered();
}

// Reads the saved values of the update rule's vector `name` into `state`. In older checkpoints a vector is
// named by its index among those of the saved job's rule. NotFound if the saved job did not keep it.
absl::Status ReadState(const std::string& checkpoint_dir, const v1::Manifest& manifest, const Range& range,
                       const std::string& name, std::vector<float>* state) {
  const absl::Status status =
      ReadParameters(checkpoint_dir, manifest, range, StateTensorName(name), state->data());
  if (!absl::IsNotFound(status)) return status;
  const std::vector<std::string> saved = MakeRule(manifest.job())->state_names();
  const auto index = std::find(saved.begin(), saved.end(), name) - saved.begin();
  if (index == std::ssize(saved)) return status;
  return ReadParameters(checkpoint_dir, manifest, range, StateTensorName(absl::StrCat(index)), state->data());
}

}  // namespace

absl::StatusOr<ShardContents> MakeContents(const v1::Job& job, const ParameterLayout& layout, int index,
                                           const std::string& checkpoint_dir, const v1::Manifest* resumed) {
  const Range range = layout.shard(index);
  ShardContents contents;
  contents.weights.resize(range.size());
  if (resumed == nullptr) {
    const DataShape data = ShapeOf(job.data());
    ASSIGN_OR_RETURN(std::vector<LayerShape> layers, InferShapes(job.model(), data.input, data.target));
    InitializeParameters(layers, job.seed(), range, contents.weights.data());
    const std::string& file = job.model().initial_weights();
    if (file.empty()) return contents;
    RETURN_IF_ERROR(ReadInitialWeights(file, layout, range, contents.weights.data()));
    return contents;
  }
  contents.checkpoint = resumed->number();
  RETURN_IF_ERROR(ReadParameters(checkpoint_dir, *resumed, range, "weights", contents.weights.data()));
  std::vector<Range> ranges;
  for (int b = 0; b < layout.num_blocks(index); ++b) ranges.push_back(layout.block(index, b));
  ASSIGN_OR_RETURN(contents.blocks, ReadBlockStates(checkpoint_dir, *resumed, ranges));
  // The master counts the versions of all blocks together. Those of an asynchronous job may lie far apart.
  if (IsSynchronous(job.algorithm().consistency()) && resumed->has_master()) {
    for (v1::BlockState& block : contents.blocks) block.set_version(resumed->master().version());
  }
  if (!HaveSameStates(resumed->job().optimizer(), job.optimizer())) {
    LOG(WARNING) << "the checkpoint has a different optimizer, so its state is reset";
    for (v1::BlockState& block : contents.blocks) {
      block.clear_optimizer_steps();
      block.clear_compensation_begin();
    }
    return contents;
  }
  const int of_optimizer = MakeOptimizer(job.optimizer())->num_states();
  for (const std::string& name : MakeRule(job)->state_names()) {
    const bool of_compensation = std::ssize(contents.states) >= of_optimizer;
    std::vector<float>& state = contents.states.emplace_back(range.size());
    const absl::Status status = ReadState(checkpoint_dir, *resumed, range, name, &state);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    if (status.ok()) continue;
    LOG(WARNING) << "the checkpoint does not have the update rule's vector " << name << ": it begins at zero";
    std::fill(state.begin(), state.end(), 0.0f);
    if (!of_compensation) continue;
    for (v1::BlockState& block : contents.blocks) block.set_compensation_begin(block.optimizer_steps());
  }
  return contents;
}

}  // namespace catchment
