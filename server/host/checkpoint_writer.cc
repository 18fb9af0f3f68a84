#include "server/host/checkpoint_writer.h"

#include <glog/logging.h>
#include <sys/resource.h>
#include <time.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/growing_pause.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/shard_file.h"
#include "common/trace/recorder.h"

namespace catchment {
namespace {

constexpr size_t kReported = 16;
// The last checkpoint of a job may be saved here before another shard has saved the one before it.
constexpr size_t kWithSteps = 2;
// Training has priority over saving when processors are short.
constexpr int kNiceness = 19;

// Runs the calling thread with a duty cycle of one half: after each part it sleeps for as long as it has used
// the processor. A low priority alone does not keep checkpoints from slowing training down, because writing
// uses caches and memory bandwidth.
class DutyCycle {
 public:
  void AfterPart() {
    const double now = ThreadSeconds();
    std::this_thread::sleep_for(std::chrono::duration<double>(now - last_));
    last_ = now;
  }

 private:
  static double ThreadSeconds() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  double last_ = ThreadSeconds();
};

}  // namespace

CheckpointWriter::CheckpointWriter(std::string directory, int shard, int num_shards, uint64_t resumed)
    : directory_(std::move(directory)), shard_(shard), num_shards_(num_shards) {
  if (resumed > 0) {
    MutexLock lock(&mu_);
    saved_.emplace_back().set_checkpoint(resumed);
  }
  thread_ = std::thread([this] { Run(); });
}

CheckpointWriter::~CheckpointWriter() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
    changed_.Notify();
  }
  thread_.join();
}

std::optional<v1::SavedShard> CheckpointWriter::Find(uint64_t number) const {
  v1::SavedShard saved;
  saved.set_checkpoint(number);
  if (directory_.empty()) return saved;
  saved.set_file(ShardFileName(shard_, num_shards_));
  const absl::StatusOr<ShardFile> file =
      OpenShard(absl::StrCat(CheckpointDirectory(directory_, number), "/", saved.file()));
  if (!file.ok()) return std::nullopt;
  saved.set_version(ShardVersion(file->state));
  AddSteps(file->state, &saved);
  return saved;
}

bool CheckpointWriter::Adopt(uint64_t number, bool takes_it_again) {
  const std::optional<v1::SavedShard> saved = Find(number);
  MutexLock lock(&mu_);
  if (saved) {
    saved_.push_back(*saved);
  } else if (!takes_it_again) {
    error_ = absl::StrCat("checkpoint ", number, " was lost with the process that wrote it");
  }
  return saved.has_value();
}

void CheckpointWriter::Write(std::unique_ptr<PendingSnapshot> snapshot) {
  std::unique_ptr<PendingSnapshot> left_out;
  MutexLock lock(&mu_);
  left_out = std::exchange(waiting_, std::move(snapshot));
  if (left_out != nullptr) {
    LOG(WARNING) << "skipping a checkpoint: the disk is slower than the job's checkpoint interval";
  }
  changed_.Notify();
}

void CheckpointWriter::Report(v1::ShardReport* report) const {
  MutexLock lock(&mu_);
  *report->mutable_saved() = {saved_.begin(), saved_.end()};
  report->set_save_error(error_);
}

void CheckpointWriter::Run() {
  NameTracedThread("checkpoints");
  // On Linux this is the priority of the calling thread alone.
  if (setpriority(PRIO_PROCESS, 0, kNiceness) != 0) PLOG(WARNING) << "checkpoints may slow down training";
  std::unique_ptr<PendingSnapshot> failed;
  GrowingPause pauses;
  double pause = 0;
  while (std::unique_ptr<PendingSnapshot> snapshot = Next(&failed, pause)) {
    if (WriteOne(snapshot->Finish())) {
      failed.reset();
      pauses.Reset();
    } else {
      failed = std::move(snapshot);
      pause = pauses.Next();
    }
  }
}

std::unique_ptr<PendingSnapshot> CheckpointWriter::Next(std::unique_ptr<PendingSnapshot>* failed,
                                                        double pause) {
  MutexLock lock(&mu_);
  const auto due = [this] { return ending_ || waiting_ != nullptr; };
  if (*failed != nullptr) {
    changed_.WaitFor(&mu_, pause, due);
  } else {
    changed_.Wait(&mu_, due);
  }
  if (waiting_ == nullptr) return ending_ ? nullptr : std::move(*failed);
  return std::move(waiting_);
}

bool CheckpointWriter::WriteOne(const ShardSnapshot& snapshot) {
  const TraceScope scope("checkpoint");
  const uint64_t number = snapshot.state.checkpoint();
  v1::SavedShard saved;
  saved.set_checkpoint(number);
  saved.set_version(ShardVersion(snapshot.state));
  if (!directory_.empty()) {
    std::vector<ShardTensor> tensors = {{"weights", snapshot.weights}};
    for (size_t i = 0; i < snapshot.states.size(); ++i) {
      tensors.push_back({StateTensorName(snapshot.state_names[i]), snapshot.states[i]});
    }
    DutyCycle duty_cycle;
    absl::StatusOr<v1::SavedShard> written =
        WriteShard(directory_, number, shard_, num_shards_, snapshot.state, tensors,
                   [&duty_cycle] { duty_cycle.AfterPart(); });
    if (!written.ok()) {
      LOG(ERROR) << "checkpoint " << number << " is not saved: " << written.status().message();
      MutexLock lock(&mu_);
      error_ = std::string(written.status().message());
      return false;
    }
    saved = *std::move(written);
  }
  AddSteps(snapshot.state, &saved);
  MutexLock lock(&mu_);
  error_.clear();
  saved_.push_back(std::move(saved));
  if (saved_.size() > kReported) saved_.pop_front();
  if (saved_.size() > kWithSteps) {
    v1::SavedShard& older = saved_[saved_.size() - kWithSteps - 1];
    older.clear_incarnations();
    older.clear_settled_steps();
    older.clear_begun_steps();
  }
  return true;
}

}  // namespace catchment
