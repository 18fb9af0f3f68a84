// The course of a job, from waiting for workers to the end of the daemons.
//
//   kWaiting <-> kTraining -> kLeaving -> kSettling -> kSaving -> kEvaluating -> kEnded -> kOver
//
// kWaiting: for the first workers, or for new ones when all are gone. kLeaving: the budget is done, training
// is good enough, or a stop was asked for; nothing is dealt any more, and workers leave. kSettling: until all
// shards have reported with no worker left, so that their versions are final. kSaving: the last checkpoint.
// kEvaluating: the final evaluation, when there is an evaluator and the job was not stopped. kEnded: the
// outputs are written, members and who watches the status hear of the end. kOver: servers end. A failure
// leads to kEnded from anywhere before it.
//
// Only this class decides on stages; it acts on nothing. Units: seconds. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_COURSE_H_
#define CATCHMENT_SERVER_MASTER_COURSE_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "proto/master.pb.h"

namespace catchment {

class Course {
 public:
  enum class Stage { kWaiting, kTraining, kLeaving, kSettling, kSaving, kEvaluating, kEnded, kOver };

  // How long the servers wait for members to hear of the end, and, at least, for workers that send nothing
  // before they leave.
  static constexpr double kLeaveSeconds = 10;
  // How long the last checkpoint may keep failing before the job fails.
  static constexpr double kSaveSeconds = 60;

  struct Facts {
    int workers = 0;  // members
    int evaluators = 0;
    bool budget_done = false;
    bool drains = false;              // workers finish what they have been granted before a stop
    bool settled = false;             // all shards have reported since the last change of the rosters
    uint64_t highest_version = 0;     // of all shards
    uint64_t bytes_pushed = 0;        // to all shards
    uint64_t earlier_checkpoint = 0;  // that the job continued from; 0: none
    uint64_t used_checkpoint = 0;     // the highest number under which shards have another state; 0: none
    bool saved = false;               // final_checkpoint() is whole, and its manifest written
    std::string save_error;
    bool evaluated = false;  // the final evaluation is done, and its weights are kept if they are to be
    bool watched = false;    // somebody is to ask for the status again
  };

  // Training begins when `workers` have come. trained_seconds: before, in an earlier life of the job.
  Course(int workers, double trained_seconds) : workers_(workers), trained_seconds_(trained_seconds) {}

  void RequestStop(std::string reason);
  // Training is done before its budget is. Without effect once that is spent, or a stop was asked for.
  void EndEarly(std::string reason);
  void Fail(std::string reason, double now);
  void OutputsWritten() { outputs_written_ = true; }

  // Goes on by one stage, if it is time to. True when it did: ask again with new facts.
  bool Step(const Facts& facts, double now);

  Stage stage() const { return stage_; }
  v1::JobStatus::Phase phase() const;
  // For people: what it waits for, why it was stopped or failed.
  std::string reason() const;

  // Leases may be dealt, now or later.
  bool open() const { return stage_ <= Stage::kTraining; }
  // Training has begun, now or before.
  bool begun() const { return begun_; }
  // kEnded or kOver.
  bool ended() const { return stage_ >= Stage::kEnded; }
  // Workers are to leave before the budget is spent.
  bool cut_short() const { return outcome_ != Outcome::kDone || !early_reason_.empty(); }
  // The job failed for no other reason than that its last checkpoint could not be saved.
  bool failed_to_save() const { return failed_to_save_; }
  // Why training ended before its budget was spent although the job is done; empty: it did not.
  const std::string& ended_early() const { return early_reason_; }
  // Returns whether workers are to leave and have pushed nothing for `patience` seconds.
  bool overdue(double now, double patience) const {
    return stage_ == Stage::kLeaving && now - std::max(entered_, pushed_at_) >= patience;
  }
  // From kSaving on; 0 before.
  uint64_t final_checkpoint() const { return final_checkpoint_; }
  // In kTraining, over all lives of the job.
  double trained_seconds(double now) const;

 private:
  enum class Outcome { kDone, kStopped, kFailed };

  Stage Next(const Facts& facts, double now);
  Stage WhileOpen(const Facts& facts);
  Stage WhileSaving(const Facts& facts, double now);
  void Enter(Stage stage, const Facts& facts, double now);
  uint64_t NumberFinalCheckpoint(const Facts& facts) const;

  const int workers_;
  double trained_seconds_;
  Stage stage_ = Stage::kWaiting;
  double entered_ = 0;  // the stage
  uint64_t bytes_pushed_ = 0;
  double pushed_at_ = 0;  // when the last of them arrived, as far as is known
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
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_COURSE_H_
