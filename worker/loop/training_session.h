// One registration of a worker: it trains on the leases of the master until there are no more, until it is
// asked to end, or until its membership is lost.
//
//   lease (master) -> minibatch (data/batch_loader, on its own thread) -> gradient (model/network)
//     -> algorithm (algorithms/) -> center (client/) and back
#ifndef CATCHMENT_WORKER_LOOP_TRAINING_SESSION_H_
#define CATCHMENT_WORKER_LOOP_TRAINING_SESSION_H_

#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/job/parameter_groups.h"
#include "proto/master.pb.h"
#include "worker/algorithms/algorithm.h"
#include "worker/client/parameter_client.h"
#include "worker/data/batch_loader.h"
#include "worker/loop/lease_source.h"
#include "worker/loop/master_leases.h"
#include "worker/loop/session.h"
#include "worker/loop/step_loop.h"
#include "worker/stop_flag.h"

namespace catchment {

// Threads: Run on one; the others from any.
class TrainingSession final : private StepLoop::Surroundings {
 public:
  // `me` is the master's answer to the registration. The session, the clock and the master outlive the
  // object.
  TrainingSession(const v1::RegisterReply& me, const WorkerOptions& options, const Clock* clock,
                  Session* session, MasterClient* master);
  // Gives the session the residual of the pushes and the highest version, for the next registration.
  ~TrainingSession() override;

  // Trains. Returns when all pushes are answered, or with the error that a retry cannot resolve.
  absl::Status Run() { return loop_.Run(); }

  // Makes Run return after the current step and its push.
  void End() override { end_.Set(); }
  // Makes Run return without waiting for answers: the membership was lost, for the reason `why`.
  void EndLost(const absl::Status& why);
  // Returns the reason that was given to EndLost; OK: none was.
  absl::Status lost() const;
  // Makes Run return without waiting for answers if it waits for servers that have neither taken nor answered
  // a block for as long as one may take. Returns true if it did.
  bool EndStalled();

  // Returns the progress with the steps that are done.
  v1::Progress progress() const;

 private:
  // StepLoop::Surroundings.
  double Now() const override { return clock_.Now(); }
  bool IsEnded() const override { return end_.IsSet(); }
  bool HasMinibatch() const override { return loader_.HasNext(); }
  absl::StatusOr<std::optional<StepLoop::Minibatch>> NextMinibatch() override;
  double WaitedSeconds() const override { return loader_.seconds_waited(); }
  // Restores the worker's saved state if the job was resumed with it.
  absl::Status OnStarted() override;
  void OnStep(const StepLoop::Minibatch& minibatch, const Algorithm::Step& step) override;
  absl::StatusOr<Score> Compute(absl::Span<const float> weights, absl::Span<float> gradient,
                                PassObserver* observer) override;
  absl::Status Failure() const override;
  void AddMeasurements(v1::Progress* progress) override;
  double BlockedSeconds() const override { return client_.totals().blocked_seconds(); }
  absl::Status SaveState(uint64_t checkpoint) override;
  void Publish(v1::Progress* progress) override;

  NextPlan Plans();
  // Lists all that the worker keeps besides the center's weights. No operation is in progress.
  WorkerState ListState();
  // Pins a vector of the algorithm's when it is first used.
  void Pin(absl::Span<const float> values);

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

  const LoadedBatch* batch_ = nullptr;  // in use by the thread of Run

  // The loader's thread uses what is declared before it.
  ParameterClient client_;
  const std::unique_ptr<Algorithm> algorithm_;
  const v1::Optimizer gradient_optimizer_;
  const RateFactors factors_;
  std::map<const float*, std::unique_ptr<Pinning>> pinned_;  // of algorithm_, by their first values
  MasterLeases lease_calls_;
  LeaseSource leases_;
  const Augmentation augmentation_;
  BatchLoader loader_;
  StepLoop loop_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_LOOP_TRAINING_SESSION_H_
