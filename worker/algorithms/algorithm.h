// What a worker does with its gradients: the worker's half of the second axis of an algorithm. The server's half
// has the same basename in server/rules.
//
// Shapes: vectors are the whole flat vector of parameters. Threads: one.
// Errors: those of Parameters.
#ifndef CATCHMENT_WORKER_ALGORITHMS_ALGORITHM_H_
#define CATCHMENT_WORKER_ALGORITHMS_ALGORITHM_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/parameters.h"

namespace catchment {

class Algorithm {
 public:
  // gradient = the mean gradient over the step's minibatch, at `weights`.
  using Gradient = absl::FunctionRef<void(absl::Span<const float> weights, absl::Span<float> gradient)>;

  struct Step {
    uint32_t samples = 0;  // of the minibatch; 0: this worker has none in this step, and no gradient is taken
    double progress = 0;   // share of the job's budget that has been dealt out, for the learning rate
  };

  virtual ~Algorithm() = default;

  // Takes the center's weights at `version` or later.
  virtual absl::Status Start(uint64_t version) = 0;
  virtual absl::Status Run(const Step& step, Gradient gradient) = 0;
  // After the last step: what has not been sent is.
  virtual absl::Status Finish() = 0;

  // Of contributions so far.
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
