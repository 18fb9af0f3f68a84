// What a worker does with its gradients: the worker's half of the second axis of an algorithm. The server's
// half has the same basename in server/shard.
//
// Communication goes on under the computation: Run may return while an operation on the center is under way,
// which the next Run settles when it needs to.
//
// Shapes: vectors are the whole flat vector of parameters. Threads: one.
// Errors: those of Parameters; of what Run left under way the next Run, Settle or Finish has them.
#ifndef CATCHMENT_WORKER_ALGORITHMS_ALGORITHM_H_
#define CATCHMENT_WORKER_ALGORITHMS_ALGORITHM_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/model/pass_observer.h"
#include "worker/parameters.h"
#include "worker/worker_state.h"

namespace catchment {

class Algorithm {
 public:
  // gradient = the mean gradient over the step's minibatch, at `weights`, taken in a pass that `observer`
  // follows.
  using Gradient = absl::FunctionRef<void(absl::Span<const float> weights, absl::Span<float> gradient,
                                          PassObserver* observer)>;

  struct Step {
    uint32_t samples = 0;  // of the minibatch; 0: this worker has none in this step, and no gradient is taken
    double progress = 0;   // share of the job's budget that has been dealt out, for the learning rate
  };

  virtual ~Algorithm() = default;

  // Takes the center's weights at `version` or later.
  virtual absl::Status Start(uint64_t version) = 0;
  virtual absl::Status Run(const Step& step, Gradient gradient) = 0;
  // Whether the last step's contribution is still on its way.
  virtual bool under_way() const { return false; }
  // Waits for what is under way. To be called before the algorithm goes: the operation uses its memory.
  virtual absl::Status Settle() { return absl::OkStatus(); }
  // Sends what has not been sent, and waits for what is under way. Steps may follow.
  virtual absl::Status Finish() = 0;

  // Adds what the algorithm keeps between two steps, other than what it has computed since its last
  // contribution. `at_version`: the next step is the first of a version of a synchronous job, which is
  // resumed from there; then also what it has computed and contributes at the beginning of the version. Call
  // it after Settle; restore after Start.
  virtual void ListState(bool at_version, WorkerState* state) = 0;

  // Of the contributions that are settled.
  struct Counts {
    uint64_t late = 0;
    uint64_t non_finite = 0;
  };
  const Counts& counts() const { return counts_; }

 protected:
  void Count(const Parameters::Outcome& outcome) {
    counts_.late += outcome.late;
    counts_.non_finite += outcome.non_finite;
  }

 private:
  Counts counts_;
};

// `job` is complete and valid. `parameters` outlives the algorithm.
std::unique_ptr<Algorithm> MakeAlgorithm(const v1::Job& job, int64_t num_parameters, Parameters* parameters);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_ALGORITHM_H_
