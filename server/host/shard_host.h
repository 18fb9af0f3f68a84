// A shard with its checkpoints, under the master's command.
#ifndef CATCHMENT_SERVER_HOST_SHARD_HOST_H_
#define CATCHMENT_SERVER_HOST_SHARD_HOST_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/parameter_layout.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "server/host/checkpoint_writer.h"
#include "server/shard/momentum_log.h"
#include "server/shard/shard.h"
#include "server/shard/standby_log.h"

namespace catchment {

// Threads: safe.
class ShardHost {
 public:
  // Called with the standby that a command names, and its run.
  using OnStandby = std::function<void(const v1::ShardCommand::Standby&, uint64_t run_id)>;

  // `layout` outlives the host. `checkpoint_dir` may be empty: nothing is kept. `log` (Shard) outlives the
  // host; null: the shard has no standby.
  ShardHost(const v1::Job& job, const ParameterLayout& layout, int index, Shard::Contents contents,
            const std::string& checkpoint_dir, StandbyLog* log = nullptr);
  ~ShardHost();

  // Sets the function; to be called before the first command.
  void SetOnStandby(OnStandby on_standby) { on_standby_ = std::move(on_standby); }
  // Calls it with a standby that no command has named yet.
  void NameStandby(const v1::ShardCommand::Standby& standby, uint64_t run_id) {
    if (on_standby_) on_standby_(standby, run_id);
  }
  // Sets the function that is called after each command: its rosters may have set an earlier deadline of an
  // update (DeadlineTimer). To be called before the first command.
  void SetAfterCommand(std::function<void()> after_command) { after_command_ = std::move(after_command); }
  StandbyLog* log() const { return log_; }

  // Executes a command: sets the rosters and the announced checkpoint, and notes the end of the job. Returns
  // the shard's report. `now`: seconds, on the clock of the requests.
  v1::ShardReport Control(const v1::ShardCommand& command, double now);

  Shard* shard() { return &shard_; }

  // Returns whether the master has said that the job is over; waits for at most `seconds` for it.
  bool WaitForStop(double seconds);
  // Returns how the job ended, as the master said: Internal with the reason of a job that has failed.
  absl::Status result();

  // Returns true once the master has said that the job trains.
  bool training();

 private:
  std::atomic<uint64_t> run_id_ = 0;  // of the last command
  const uint64_t resumed_;            // the checkpoint that the shard begins with; 0: none
  StandbyLog* const log_;
  OnStandby on_standby_;
  std::function<void()> after_command_;
  std::unique_ptr<CheckpointWriter> writer_;
  Shard shard_;
  Mutex mu_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool training_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status result_ ABSL_GUARDED_BY(mu_);
  MomentumLog momentum_log_ ABSL_GUARDED_BY(mu_);
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_HOST_SHARD_HOST_H_
