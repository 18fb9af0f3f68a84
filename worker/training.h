// The life cycle of a worker: it registers, trains on the leases of the master, and leaves. Begin reading
// here.
//
//   lease (master) -> minibatch (data/batch_loader, on its own thread) -> gradient (model/network)
//     -> algorithm (algorithms/) -> center (client/) and back
//
// A worker whose membership has expired (it was suspended for too long, or disconnected) registers again and
// continues with the center's weights.
#ifndef CATCHMENT_WORKER_TRAINING_H_
#define CATCHMENT_WORKER_TRAINING_H_

#include <string>
#include <thread>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/growing_pause.h"
#include "common/mutex.h"
#include "worker/algorithms/algorithm.h"
#include "worker/client/parameter_client.h"
#include "worker/data/batch_loader.h"
#include "worker/lease_source.h"
#include "worker/session.h"
#include "worker/stop_flag.h"

namespace catchment {

// Threads: Run on one; Stop from any.
class Training {
 public:
  // `clock` outlives it.
  Training(WorkerOptions options, const Clock* clock);
  ~Training();

  // Runs until the job is done or Stop is called (OK), or until an error that a retry cannot resolve.
  absl::Status Run();

  // Ends after the current step and its push, or, if the servers no longer respond, in a few seconds.
  void Stop();

 private:
  // The state of one registration.
  struct Membership;

  // Ends the wait for servers that do not respond.
  void WatchEnd();
  absl::Status RunMembership(Session* session);
  absl::Status Train(Session* session, Membership* membership);
  absl::Status RunSteps(Session* session, Membership* membership);
  // Begins with the center's weights, and with the worker's saved state if the job was resumed with it.
  absl::Status Start(Session* session, Membership* membership);
  // Does what the master asks for between two steps (the tags of LeaseSource).
  absl::Status Handle(uint64_t tag, Session* session, Membership* membership);
  absl::Status SaveOwnState(uint64_t checkpoint, Session* session, Membership* membership);
  absl::Status RunStep(Session* session, const LoadedBatch& batch, Membership* membership);
  // Records that all steps so far are done.
  void Report(Membership* membership);
  void Leave(const v1::RegisterReply& me, const absl::Status& why);
  absl::Status JobFailed() const;
  // Leaves a place that a server refused, so that others need not wait for it; the worker registers again.
  void GiveUpPlace(const v1::RegisterReply& me, const absl::Status& why);
  v1::Progress progress() const;

  const WorkerOptions options_;
  const Clock& clock_;
  StopFlag stop_;
  StopFlag finished_;
  MasterClient master_;
  GrowingPause pauses_;  // between registrations; for the thread of Run
  std::string
      job_failure_;  // of the thread that runs: why the job failed; empty: it has not, as far as is known

  mutable Mutex mu_;
  v1::Progress progress_ ABSL_GUARDED_BY(mu_);  // of the steps that are done
  Membership* membership_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::thread watchdog_ ABSL_GUARDED_BY(mu_);  // after Stop
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_TRAINING_H_
