// The life cycle of a worker: it registers, trains (worker/loop/training_session.h), and leaves. Begin
// reading here.
//
// A worker whose membership is lost (its process was suspended for too long, or was disconnected, or the job
// goes back to a checkpoint) registers again and continues with the center's weights. A worker that is done
// stays until its work is in the last checkpoint, because until then the job may go back and need it again.
#ifndef CATCHMENT_WORKER_LOOP_TRAINER_H_
#define CATCHMENT_WORKER_LOOP_TRAINER_H_

#include <string>
#include <thread>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/growing_pause.h"
#include "common/base/mutex.h"
#include "common/metrics/families.h"
#include "worker/loop/master_client.h"
#include "worker/loop/session.h"
#include "worker/loop/training_session.h"
#include "worker/stop_flag.h"

namespace catchment {

// Threads: Run on one; Stop from any.
class Trainer {
 public:
  // `clock` outlives it.
  Trainer(WorkerOptions options, const Clock* clock);
  ~Trainer();

  // Runs until the job is done or Stop is called (OK), or until an error that a retry cannot resolve.
  absl::Status Run();

  // Returns why Run returned OK, after it has.
  const std::string& end() const { return end_; }
  // Returns true if the error of Run is that the attached program failed after its last step.
  bool program_failed() const { return program_failed_; }

  // Appends the progress of the current registration, or of the last one. Threads: any.
  void AddMetrics(MetricFamilies* families);

  // Ends after the current step and its push, or, if the servers no longer respond, in a few seconds.
  void Stop();

 private:
  // Ends the training of the current registration, as Stop does.
  void EndTraining();
  // Lets the worker train again after EndTraining. Returns false after Stop.
  bool MayTrainAgain();
  // Ends the wait for servers that do not respond.
  void WatchEnd();
  // Registers and trains until the worker's part in the job ends (OK). Errors: Aborted if the membership was
  // lost, and the worker may register again.
  absl::Status RunSession(Session* session);
  // Lets the attached program begin, if there is one.
  absl::Status Join(const v1::RegisterReply& me, Session* session);
  // Trains while the master is sent heartbeats.
  absl::Status RunWithHeartbeat(const v1::RegisterReply& me, TrainingSession* training);
  // Sets the session that EndTraining ends; null: there is none.
  void SetCurrent(TrainingSession* training);
  v1::LeaveRequest MakeLeaveRequest(const v1::RegisterReply& me, const v1::Progress& progress) const;
  // Leaves because of `why`, and returns it, or, if training has ended in order, as AwaitRecord.
  absl::Status Leave(const v1::RegisterReply& me, const v1::Progress& progress, const absl::Status& why,
                     Session* session);
  // Sends the request until the master has recorded the last checkpoint (OK). Errors: Aborted if the job has
  // gone back, and the worker may register again. Meanwhile reads the final weights for the attached program,
  // if there is one.
  absl::Status AwaitRecord(v1::LeaveRequest request, Session* session);
  void ReadResult(Session* session);
  // Ends the membership of a worker that a server refused, so that no other worker waits for it.
  void LeaveToRegisterAgain(const v1::RegisterReply& me, const v1::Progress& progress,
                            const absl::Status& why);
  // Sends the request, and records whether the job has failed. `what`: the worker does.
  void SendLeave(const v1::LeaveRequest& request, const std::string& what);
  absl::Status JobFailed() const;
  // Returns why the worker ends in order. `status`: how the last registration ended.
  std::string DescribeEnd(const absl::Status& status, const Session* session);

  const WorkerOptions options_;
  const Clock& clock_;
  StopFlag signalled_;  // by Stop
  StopFlag stop_;       // the current registration, by Stop or by the master
  StopFlag finished_;
  MasterClient master_;
  // Used by the thread of Run.
  GrowingPause pauses_;  // between registrations
  bool program_failed_ = false;
  std::string job_failure_;  // why the job failed; empty: it has not, as far as is known
  std::string end_;

  Mutex mu_;
  TrainingSession* current_ ABSL_GUARDED_BY(mu_) = nullptr;
  v1::Progress progress_ ABSL_GUARDED_BY(mu_);        // of the registration before
  std::string ended_by_master_ ABSL_GUARDED_BY(mu_);  // why; empty: it was not
  std::thread watchdog_ ABSL_GUARDED_BY(mu_);         // after EndTraining
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_LOOP_TRAINER_H_
