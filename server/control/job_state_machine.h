// The states of a job, from waiting for workers to the exit of the daemons.
//
//   kWaiting <-> kTraining -> kLeaving -> kSettling -> kSaving -> kEvaluating -> kEnded -> kOver
//
// kWaiting     Waits for the first workers, or for new ones after all have left.
// kTraining    Workers train.
// kLeaving     The budget is spent, training is good enough, or a stop was requested: no more samples are
//              assigned, and workers leave.
// kSettling    No worker is left. Waits until all shards have reported, so that their versions are final.
// kSaving      Waits for the last checkpoint.
// kEvaluating  Waits for the final evaluation, and for an evaluator that was lost. Skipped if the job has
//              none, or was stopped.
// kEnded       The outputs are written, and members and clients that poll the status learn that the job
//              ended.
// kOver        The servers exit.
//
// A failure leads to kEnded from every earlier state; FailAfterSaving leads to kLeaving first.
//
// This class only decides on transitions; its owner performs the actions. Units: seconds. Threads: not
// thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_JOB_STATE_MACHINE_H_
#define CATCHMENT_SERVER_CONTROL_JOB_STATE_MACHINE_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "proto/master.pb.h"
#include "proto/master_image.pb.h"

namespace catchment {

class JobStateMachine {
 public:
  enum class State { kWaiting, kTraining, kLeaving, kSettling, kSaving, kEvaluating, kEnded, kOver };
  enum class Outcome { kDone, kStopped, kFailed };

  // The longest time that servers wait for members to learn of the end, and the shortest that they wait for
  // workers that must leave and push nothing.
  static constexpr double kLeaveSeconds = 10;
  // The time for which the last checkpoint may keep failing before the job fails.
  static constexpr double kSaveSeconds = 60;

  struct Facts {
    int workers = 0;  // members
    int evaluators = 0;
    int expected_evaluators = 0;    // that the job had and that did not leave, or is to have
    double evaluator_patience = 0;  // the time for which the final evaluation waits for one of them
    bool budget_done = false;
    bool drains = false;              // workers finish their leases before a stop
    bool settled = false;             // all shards have reported since the rosters last changed
    uint64_t highest_version = 0;     // over all shards
    uint64_t bytes_pushed = 0;        // to all shards
    uint64_t earlier_checkpoint = 0;  // the checkpoint that the job was resumed from; 0: none
    uint64_t used_checkpoint = 0;     // the highest number under which shards have another state; 0: none
    bool saved = false;               // final_checkpoint() is saved by all shards, and its manifest written
    std::string save_error;
    bool evaluated = false;  // the final evaluation is done, and its weights are kept if requested
    bool watched = false;    // a client will poll the status again
    int staying = 0;         // workers that have left and wait for the last checkpoint
  };

  // Training begins when `workers` workers have registered. `trained_seconds` is the time of earlier runs.
  JobStateMachine(int workers, double trained_seconds)
      : workers_(workers), trained_seconds_(trained_seconds) {}

  // Changes the number of workers that training begins with. At the time `until` it begins with those that
  // have registered, of which there must be one.
  void ExpectWorkers(int workers, double until) {
    workers_ = workers;
    expected_until_ = until;
  }
  void RequestStop(std::string reason);
  // Stops the job without waiting for its workers and without a last checkpoint.
  void StopNow(std::string reason, double now);
  // Ends training before its budget is spent. Has no effect afterwards, or after RequestStop.
  void EndEarly(std::string reason);
  void Fail(std::string reason, double now);
  // Lets a job that trains save a last checkpoint, and then fail: for a reason that leaves the weights as
  // they were. Without training, or after its end, this is Fail.
  void FailAfterSaving(std::string reason, double now);
  void OutputsWritten() { outputs_written_ = true; }

  v1::StateMachineImage Save(double now) const;
  void Restore(const v1::StateMachineImage& image, double now);

  // Makes at most one transition. Returns true if it did; call it again with new facts.
  bool Step(const Facts& facts, double now);

  State state() const { return state_; }
  v1::JobStatus::Phase phase() const;
  // Returns, for people, what the job waits for, or why it was stopped or failed.
  std::string reason() const;

  // Returns true if leases may be assigned now or later.
  bool open() const { return state_ <= State::kTraining; }
  // Returns true if training has begun, now or earlier.
  bool begun() const { return begun_; }
  // Returns true from the end of training until the last checkpoint is recorded.
  bool awaits_last_checkpoint() const { return state_ >= State::kLeaving && state_ <= State::kSaving; }
  // Returns true when no worker is left that could change the weights.
  bool weights_are_final() const { return state_ >= State::kSettling; }
  // Returns true in kEnded and kOver.
  bool ended() const { return state_ >= State::kEnded; }
  // Returns true if the servers must exit.
  bool over() const { return state_ == State::kOver; }
  // Returns true while workers train and while the job is being finished.
  bool training() const { return phase() == v1::JobStatus::TRAINING || phase() == v1::JobStatus::FINISHING; }
  bool stop_requested() const { return stop_requested_; }
  // Returns true if workers must leave before the budget is spent.
  bool cut_short() const { return outcome_ != Outcome::kDone || !early_reason_.empty(); }
  // Returns true if the job failed only because its last checkpoint could not be saved.
  bool failed_to_save() const { return failed_to_save_; }
  // Returns true if the weights are, or will be, those of a job that was not interrupted by a failure. That
  // is also so if it failed only because its last checkpoint could not be saved.
  bool weights_are_whole() const { return phase() != v1::JobStatus::FAILED || failed_to_save_; }
  // Returns why training of a job that is done ended before its budget was spent; empty if it did not.
  const std::string& ended_early() const { return early_reason_; }
  // Returns true if workers must leave and have pushed nothing for `patience` seconds.
  bool overdue(double now, double patience) const {
    return state_ == State::kLeaving && now - std::max(entered_, pushed_at_) >= patience;
  }
  // Returns the number of the last checkpoint from kSaving on, 0 before.
  uint64_t final_checkpoint() const { return final_checkpoint_; }
  // Returns the time in kTraining over all runs of the job.
  double trained_seconds(double now) const;

 private:
  State Next(const Facts& facts, double now);
  State WhileOpen(const Facts& facts, double now);
  State WhileSaving(const Facts& facts, double now);
  // Returns true if the final evaluation has an evaluator, or one may still come back.
  bool MayBeEvaluated(const Facts& facts, double now);
  void Enter(State state, const Facts& facts, double now);
  uint64_t NumberFinalCheckpoint(const Facts& facts) const;

  int workers_;
  std::optional<double> expected_until_;
  double trained_seconds_;
  State state_ = State::kWaiting;
  double entered_ = 0;  // when the current state was entered
  uint64_t bytes_pushed_ = 0;
  double pushed_at_ = 0;  // when bytes_pushed_ was last seen to grow
  bool begun_ = false;
  bool stop_requested_ = false;
  bool outputs_written_ = false;
  Outcome outcome_ = Outcome::kDone;
  std::string stop_reason_;
  std::string early_reason_;
  std::string failure_;
  std::string save_error_;
  double save_error_since_ = 0;
  bool failed_to_save_ = false;
  uint64_t final_checkpoint_ = 0;
  int workers_now_ = 0;
  bool awaits_evaluator_ = false;
  bool unscored_ = false;  // the job is done without its final evaluation, because its evaluators were lost
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_JOB_STATE_MACHINE_H_
