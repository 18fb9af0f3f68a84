#include "server/host/shard_host.h"

#include <glog/logging.h>

#include "absl/strings/str_cat.h"
#include "common/trace/recorder.h"
#include "server/rules/rule.h"

namespace catchment {
namespace {

// Lets the writer continue with the last checkpoint that a restored shard has taken. If the process was lost
// before it was saved, the shard writes it again if that is possible.
Shard::Contents WithCheckpoint(Shard::Contents contents, CheckpointWriter* writer) {
  if (!contents.images.empty() && contents.checkpoint > 0)
    contents.may_take_again = !writer->Adopt(contents.checkpoint, contents.may_take_again);
  return contents;
}

}  // namespace

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
