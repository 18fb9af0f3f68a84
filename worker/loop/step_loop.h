// The steps of one registration of a worker: minibatches of the master's leases, each a step of the job's
// algorithm, and what the master asks for between two steps.
//
// The same loop runs in a worker (worker/loop/training_session.h) and in a simulation
// (simulation/simulated_worker.h). Data, computation and time are given by StepLoop::Surroundings.
//
// Units: seconds. Threads: one.
#ifndef CATCHMENT_WORKER_LOOP_STEP_LOOP_H_
#define CATCHMENT_WORKER_LOOP_STEP_LOOP_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/span.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "worker/algorithms/algorithm.h"
#include "worker/loop/lease_source.h"
#include "worker/model/pass_observer.h"

namespace catchment {

// Returns how many times as long a worker's computation is to take (Faults.stragglers); 1: it is no
// straggler.
double SlowdownOf(const v1::Job& job, uint32_t worker);

class StepLoop {
 public:
  // A minibatch, or a request of the master (LeaseSource::IsRequest).
  struct Minibatch {
    uint64_t tag = 0;
    absl::Span<const Span> spans;
  };

  class Surroundings {
   public:
    virtual ~Surroundings() = default;
    virtual double Now() const = 0;
    // Returns true if the worker was asked to end after the step in progress.
    virtual bool IsEnded() const = 0;
    virtual void End() = 0;
    // Returns true if NextMinibatch would return at once.
    virtual bool HasMinibatch() const = 0;
    // Returns the next minibatch, valid until the next call. Nothing: there are no more. Waits for it if need
    // be.
    virtual absl::StatusOr<std::optional<Minibatch>> NextMinibatch() = 0;
    // Returns the seconds for which all calls of NextMinibatch have waited.
    virtual double WaitedSeconds() const = 0;
    // Called when the worker has the center's weights, before its first step.
    virtual absl::Status OnStarted() { return absl::OkStatus(); }
    virtual void OnStep(const Minibatch& /*minibatch*/, const Algorithm::Step& /*step*/) {}
    // Computes the gradient of the last minibatch at `weights`.
    virtual absl::StatusOr<Score> Compute(absl::Span<const float> weights, absl::Span<float> gradient,
                                          PassObserver* observer) = 0;
    // Returns why the computation cannot continue; OK: it can.
    virtual absl::Status Failure() const { return absl::OkStatus(); }
    // Adds to the progress what the computation of a step has measured itself.
    virtual void AddMeasurements(v1::Progress* /*progress*/) {}
    // Returns the seconds for which the exchange with the center has blocked the worker.
    virtual double BlockedSeconds() const = 0;
    // Saves the worker's state for a checkpoint. No operation is in progress.
    virtual absl::Status SaveState(uint64_t checkpoint) = 0;
    // Adds what the exchange has transferred, and publishes the progress with all steps that are done.
    virtual void Publish(v1::Progress* progress) = 0;
  };

  // All pointers outlive the loop. `samples_per_epoch`: SamplesPerEpoch.
  StepLoop(uint64_t samples_per_epoch, Algorithm* algorithm, LeaseSource* leases, Surroundings* surroundings)
      : samples_per_epoch_(samples_per_epoch),
        algorithm_(*algorithm),
        leases_(*leases),
        surroundings_(*surroundings) {}

  // Trains. Returns when all pushes are answered, or with the error that a retry cannot resolve.
  absl::Status Run();

 private:
  absl::Status RunSteps();
  absl::Status Start();
  absl::Status HandleRequest(uint64_t tag);
  absl::Status RunStep(const Minibatch& minibatch);
  void Report();

  const uint64_t samples_per_epoch_;
  Algorithm& algorithm_;
  LeaseSource& leases_;
  Surroundings& surroundings_;
  bool started_ = false;
  double waited_to_start_ = 0;  // for the first minibatch, mostly for other workers to arrive
  v1::Progress progress_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_LOOP_STEP_LOOP_H_
