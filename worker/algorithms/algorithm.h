// The worker's half of a kind of contribution, the second axis of an algorithm: it uses the gradients and
// exchanges contributions and weights with the center. The server's half has the same basename in
// server/rules.
//
// Communication overlaps with computation: Run may return while an operation on the center is in flight, for
// which the next Run waits when necessary.
//
// Shapes: vectors are the whole flat vector of parameters. Threads: one.
// Errors: those of Parameters. Those of an operation in flight are returned by the next Run, Settle or
// Finish.
#ifndef CATCHMENT_WORKER_ALGORITHMS_ALGORITHM_H_
#define CATCHMENT_WORKER_ALGORITHMS_ALGORITHM_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/local_weights.h"
#include "worker/model/pass_observer.h"
#include "worker/parameters.h"
#include "worker/worker_state.h"

namespace catchment {

class Algorithm {
 public:
  // gradient = the mean gradient over the step's minibatch, at `weights`. Notifies `observer` of the progress
  // of the pass.
  using Gradient = absl::FunctionRef<void(absl::Span<const float> weights, absl::Span<float> gradient,
                                          PassObserver* observer)>;

  struct Step {
    uint32_t samples = 0;  // of the minibatch; 0: there is none in this step, and no gradient is computed
    double progress = 0;   // share of the job's budget that has been assigned, for the learning rate
    // With PseudoGradient.steps_by_speed: the steps between two contributions; 0: local_steps.
    uint32_t local_steps = 0;
    // In the last lease of a synchronous job (Lease.last): the number of steps after this one.
    std::optional<uint32_t> left = std::nullopt;
    // Wait for all answers first, without using them (Lease.settle).
    bool settle = false;
  };

  virtual ~Algorithm() = default;

  // Pulls the center's weights at `version` or later.
  virtual absl::Status Start(uint64_t version) = 0;
  virtual absl::Status Run(const Step& step, Gradient gradient) = 0;
  // Returns true if the last step's contribution is still in flight.
  virtual bool in_flight() const { return false; }
  // Waits for the operation in flight. Call it before the destructor: the operation uses the algorithm's
  // memory.
  virtual absl::Status Settle() { return absl::OkStatus(); }
  // Sends everything that has not been sent, and waits for operations in flight. Steps may follow.
  virtual absl::Status Finish() = 0;

  // Adds the state that the algorithm keeps between two steps, without everything computed since its last
  // contribution. If `at_version`, the next step is the first of a version of a synchronous job, which can be
  // resumed there; then also adds the contribution that it makes at the beginning of the version. Call
  // it after Settle; restore the state after Start.
  virtual void ListState(bool at_version, WorkerState* state) = 0;

  // Returns the statistics of contributions that have been answered.
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

// Returns the algorithm of a complete and valid job. `parameters` and the model's memory must outlive it.
// Without a layout the algorithm ignores groups of parameters.
std::unique_ptr<Algorithm> MakeAlgorithm(const v1::Job& job, int64_t num_parameters, Parameters* parameters,
                                         const ModelMemory& memory = {},
                                         const ParameterLayout* layout = nullptr);

// Returns true if the workers' part of the job's algorithm needs a program's weights only when they are
// exchanged. The saved state of a worker contains its weights, so they must be the worker's own.
bool MayKeepWeights(const v1::Job& job);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_ALGORITHM_H_
