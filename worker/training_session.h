// One registration of a worker: it trains on the leases of the master until there are no more, until it is
// asked to end, or until its membership is lost.
//
//   lease (master) -> minibatch (data/batch_loader, on its own thread) -> gradient (model/network)
//     -> algorithm (algorithms/) -> center (client/) and back
#ifndef CATCHMENT_WORKER_TRAINING_SESSION_H_
#define CATCHMENT_WORKER_TRAINING_SESSION_H_

#include <map>
#include <memory>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/master.pb.h"
#include "worker/algorithms/algorithm.h"
#include "worker/client/parameter_client.h"
#include "worker/data/batch_loader.h"
#include "worker/lease_source.h"
#include "worker/master_leases.h"
#include "worker/session.h"
#include "worker/stop_flag.h"

namespace catchment {

// Threads: Run on one; the others from any.
class TrainingSession {
 public:
  // `me` is the master's answer to the registration. The session, the clock and the master outlive the object.
  TrainingSession(const v1::RegisterReply& me, const WorkerOptions& options, const Clock* clock,
                  Session* session, MasterClient* master);
  // Gives the session the residual of the pushes and the highest version, for the next registration.
  ~TrainingSession();

  // Trains. Returns when all pushes are answered, or with the error that a retry cannot resolve.
  absl::Status Run();

  // Lets Run return after the current step and its push.
  void End() { end_.Set(); }
  // Lets Run return without waiting for answers: the membership was lost, for the reason `why`.
  void EndLost(const absl::Status& why);
  // Returns the reason that was given to EndLost; OK: none was.
  absl::Status lost() const;
  // Lets Run return without waiting for answers if it waits for servers that have neither taken nor answered a
  // block for as long as one may take. Returns true if it did.
  bool EndStalled();

  // Returns the progress with the steps that are done.
  v1::Progress progress() const;

 private:
  NextPlan Plans();
  absl::Status RunSteps();
  // Begins with the center's weights, and with the worker's saved state if the job was resumed with it.
  absl::Status Start();
  absl::Status RestoreOwnState();
  // Does what the master asks for between two steps (the tags of LeaseSource).
  absl::Status HandleRequest(uint64_t tag);
  absl::Status SaveOwnState(uint64_t checkpoint);
  // Lists all that the worker keeps besides the center's weights. No operation is in progress.
  WorkerState ListState();
  absl::Status RunStep(const LoadedBatch& batch);
  // Computes the gradient of a minibatch at `weights`.
  Score ComputeGradient(const LoadedBatch& batch, absl::Span<const float> weights, absl::Span<float> gradient,
                        PassObserver* observer);
  // Pins a vector of the algorithm's when it is first used.
  void Pin(absl::Span<const float> values);
  // Publishes the progress with all steps so far.
  void Report();

  const v1::RegisterReply me_;
  const Clock& clock_;
  Session& session_;
  MasterClient& master_;
  const double slowdown_;       // of the computation, for a straggler; 1: none
  const double stop_patience_;  // seconds
  StopFlag end_;                // no more steps

  mutable Mutex mu_;
  absl::Status lost_ ABSL_GUARDED_BY(mu_);
  v1::Progress progress_ ABSL_GUARDED_BY(mu_);

  // Used by the thread of Run.
  bool started_ = false;
  double waited_to_start_ =
      0;                  // seconds for the first minibatch; most of them are for other workers to arrive
  v1::Progress current_;  // with the step in progress

  // The loader's thread uses what is declared before it.
  ParameterClient client_;
  const std::unique_ptr<Algorithm> algorithm_;
  std::map<const float*, std::unique_ptr<Pinning>> pinned_;  // of algorithm_, by their first values
  MasterLeases lease_calls_;
  LeaseSource leases_;
  const Augmentation augmentation_;
  BatchLoader loader_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_TRAINING_SESSION_H_
