// The model that simulated workers train: the job's own model on its data, computed on this machine, or a
// quadratic function. One object serves all workers.
//
// Shapes: weights and gradients are flat vectors of all tensors(). Threads: one.
#ifndef CATCHMENT_SIMULATION_SIMULATED_MODEL_H_
#define CATCHMENT_SIMULATION_SIMULATED_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/parameter_layout.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "simulation/models.h"
#include "worker/data/batch_reader.h"

namespace catchment {

class SimulatedModel {
 public:
  virtual ~SimulatedModel() = default;

  virtual const std::vector<TensorSpec>& tensors() const = 0;
  // Returns the parts that a pass goes through one after another.
  virtual const std::vector<Range>& layers() const = 0;
  virtual absl::StatusOr<std::vector<float>> InitialWeights(const ParameterLayout& layout) const = 0;
  virtual uint64_t train_samples() const = 0;
  // RegisterRequest.data_checksum; 0: there are no data.
  virtual uint64_t data_checksum() const { return 0; }
  // Returns the bytes of the job's model for each byte of these tensors.
  virtual double wire_scale() const { return 1; }
  // Returns the number of values in a block; nothing: that of the job.
  virtual std::optional<int64_t> block_size() const { return std::nullopt; }
  // Returns a line for people: "cpu: oneDNN 2.6.3, 1 thread".
  virtual std::string description() const = 0;

  // gradient = the gradient of the mean loss over the minibatch.
  virtual absl::StatusOr<Score> Train(absl::Span<const float> weights, const BatchPlan& plan,
                                      absl::Span<float> gradient) = 0;
  // Returns a report with samples, correct, loss_sum and statistics; without samples where nothing can be
  // scored.
  virtual absl::StatusOr<v1::EvaluationReport> Evaluate(absl::Span<const float> weights) = 0;
};

// Loads the job's data and makes its model on the CPU, such that the same step gives the same bits. `job` is
// complete and valid. Errors: those of the data and the model; InvalidArgument for a job whose gradients are
// a program's.
absl::StatusOr<std::unique_ptr<SimulatedModel>> MakeTrainedModel(const v1::Job& job);

// f(w) = 1/2 sum_i h_i w_i^2, with curvatures h_i from 1 / condition to 1, evenly spaced on a logarithmic
// scale, from w = 1. The gradient of a minibatch is h_i w_i plus normal noise. As the accuracy it reports the
// share of the initial loss that is gone, so that the report's curves and times to a target apply. Its
// messages take as long as those of the job's model, and there are as many of them, at most 64 for each
// server: each server has as many blocks, of 16 values or more.
absl::StatusOr<std::unique_ptr<SimulatedModel>> MakeQuadratic(const QuadraticModel& quadratic,
                                                              const v1::Job& job, int servers);
// Returns the number of values of such a function.
int64_t QuadraticValues(const v1::Job& job, int64_t values_of_model, int servers);

}  // namespace catchment

#endif  // CATCHMENT_SIMULATION_SIMULATED_MODEL_H_
