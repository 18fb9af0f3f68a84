#include "server/shard/shard_host.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/initial_weights.h"
#include "common/job/algorithm_facts.h"
#include "common/job/data_sources.h"
#include "common/job/initializer.h"
#include "common/job/model_shapes.h"
#include "common/trace/recorder.h"
#include "optim/optimizer.h"
#include "server/rules/rule.h"

namespace catchment {
namespace {

// A vector that only one of them keeps begins at zero.
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

// Lets the writer continue with the last checkpoint that a restored shard has taken. If the process was lost
// before it was saved, the shard writes it again if that is possible.
Shard::Contents WithCheckpoint(Shard::Contents contents, CheckpointWriter* writer) {
  if (!contents.images.empty() && contents.checkpoint > 0)
    contents.may_take_again = !writer->Adopt(contents.checkpoint, contents.may_take_again);
  return contents;
}

}  // namespace

absl::StatusOr<Shard::Contents> MakeContents(const v1::Job& job, const ParameterLayout& layout, int index,
                                             const std::string& checkpoint_dir, const v1::Manifest* resumed) {
  const Range range = layout.shard(index);
  Shard::Contents contents;
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

ShardHost::ShardHost(const v1::Job& job, const ParameterLayout& layout, int index, Shard::Contents contents,
                     const std::string& checkpoint_dir, StandbyLog* log)
    : resumed_(contents.images.empty() ? contents.checkpoint : 0),
      log_(log),
      writer_(std::make_unique<CheckpointWriter>(checkpoint_dir, index, layout.num_shards(), resumed_)),
      shard_(
          job, layout, index, WithCheckpoint(std::move(contents), writer_.get()),
          [this](std::unique_ptr<PendingSnapshot> snapshot) {
            snapshot->set_run_id(run_id_);
            writer_->Write(std::move(snapshot));
          },
          /*keeps_values=*/!checkpoint_dir.empty(), log),
      momentum_log_(job.optimizer().momentum()) {
  NameTracedProcess(absl::StrCat("server ", index));
  if (MakeRule(job)->needs_sent_weights()) {
    LOG(INFO) << "the staleness compensation keeps the weights sent to each worker: "
              << layout.shard(index).size() * static_cast<int64_t>(sizeof(float)) << " bytes for each";
  }
}

// The writer's snapshots end before their shard.
ShardHost::~ShardHost() { writer_.reset(); }

v1::ShardReport ShardHost::Control(const v1::ShardCommand& command, double now) {
  run_id_ = command.run().id();
  NameTracedRun(run_id_);
  std::vector<Answer> answers;
  shard_.SetRosters(command, now, &answers);
  Deliver(&answers);
  if (after_command_) after_command_();
  if (on_standby_ && command.has_standby()) on_standby_(command.standby(), command.run().id());
  v1::ShardReport report = shard_.Report(!command.without_statistics());
  writer_->Report(&report);
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
