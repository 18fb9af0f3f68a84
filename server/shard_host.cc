#include "server/shard_host.h"

#include <glog/logging.h>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/initializer.h"
#include "common/job/data_shape.h"
#include "common/model_shapes.h"
#include "server/optimizers/optimizer.h"
#include "server/rules/rule.h"

namespace catchment {
namespace {

// Where one of them lacks momentum the state of the other's begins at zero.
bool HaveSameStates(const v1::Optimizer& a, const v1::Optimizer& b) {
  return a.kind() == b.kind() && a.centered() == b.centered();
}

}  // namespace

absl::StatusOr<Shard::Contents> MakeContents(const v1::Job& job, const ParameterLayout& layout, int index,
                                             const std::string& checkpoint_dir, const v1::Manifest* resumed) {
  const Range range = layout.shard(index);
  Shard::Contents contents;
  contents.weights.resize(range.size());
  if (resumed == nullptr) {
    const DataShape data = ShapeOf(job.data());
    absl::StatusOr<std::vector<LayerShape>> layers = InferShapes(job.model(), data.input, data.target);
    if (!layers.ok()) return layers.status();
    InitializeParameters(*layers, job.seed(), range, contents.weights.data());
    return contents;
  }
  contents.checkpoint = resumed->number();
  absl::Status status = ReadParameters(checkpoint_dir, *resumed, range, "weights", contents.weights.data());
  if (!status.ok()) return status;
  std::vector<Range> ranges;
  for (int b = 0; b < layout.num_blocks(index); ++b) ranges.push_back(layout.block(index, b));
  absl::StatusOr<std::vector<v1::BlockState>> blocks = ReadBlockStates(checkpoint_dir, *resumed, ranges);
  if (!blocks.ok()) return blocks.status();
  contents.blocks = *std::move(blocks);
  if (!HaveSameStates(resumed->job().optimizer(), job.optimizer())) {
    LOG(WARNING) << "the checkpoint's optimizer was another: its state begins anew";
    for (v1::BlockState& block : contents.blocks) block.clear_optimizer_steps();
    return contents;
  }
  const bool same_compensation =
      resumed->job().algorithm().compensation().kind_case() == job.algorithm().compensation().kind_case();
  const int num_states = MakeRule(job)->num_states();
  const int of_optimizer = MakeOptimizer(job.optimizer())->num_states();
  for (int i = 0; i < num_states; ++i) {
    std::vector<float>& state = contents.states.emplace_back(range.size());
    if (i >= of_optimizer && !same_compensation) {
      LOG(WARNING) << "the checkpoint's compensation was another: its state begins at zero";
      continue;
    }
    status = ReadParameters(checkpoint_dir, *resumed, range, absl::StrCat("state.", i), state.data());
    if (absl::IsNotFound(status)) {
      LOG(WARNING) << "the checkpoint has no optimizer state " << i << ": it begins at zero";
      std::fill(state.begin(), state.end(), 0.0f);
    } else if (!status.ok()) {
      return status;
    }
  }
  return contents;
}

ShardHost::ShardHost(const v1::Job& job, const ParameterLayout& layout, int index, Shard::Contents contents,
                     const std::string& checkpoint_dir)
    : writer_(checkpoint_dir, index, layout.num_shards(), contents.checkpoint),
      shard_(job, layout, index, std::move(contents),
             [this](ShardSnapshot snapshot) {
               snapshot.state.set_run_id(run_id_);
               writer_.Write(std::move(snapshot));
             }),
      momentum_log_(job.optimizer().momentum()) {
  if (MakeRule(job)->needs_sent_weights()) {
    LOG(INFO) << "the compensation for staleness keeps what each worker was sent: "
              << layout.shard(index).size() * static_cast<int64_t>(sizeof(float)) << " bytes for each";
  }
}

v1::ShardReport ShardHost::Control(const v1::ShardCommand& command, double now) {
  run_id_ = command.run().id();
  std::vector<Answer> answers;
  shard_.SetRosters(command, now, &answers);
  Deliver(&answers);
  if (command.checkpoint() > 0) shard_.Checkpoint(command.checkpoint());
  v1::ShardReport report = shard_.Report();
  writer_.Report(&report);
  MutexLock lock(&mu_);
  if (const auto line = momentum_log_.Line(report.momentum())) LOG(INFO) << *line;
  training_ = command.training();
  if (command.stop()) {
    stop_ = true;
    if (!command.failure().empty())
      result_ = absl::InternalError(absl::StrCat("the job failed: ", command.failure()));
    changed_.Notify();
  }
  return report;
}

bool ShardHost::WaitForStop(double seconds) {
  MutexLock lock(&mu_);
  return changed_.WaitFor(&mu_, seconds, [this] { return stop_; });
}

absl::Status ShardHost::result() {
  MutexLock lock(&mu_);
  return result_;
}

bool ShardHost::training() {
  MutexLock lock(&mu_);
  return training_;
}

}  // namespace catchment
