// The model that a worker trains and an evaluator scores. A Network computes; a SyntheticModel only waits.
//
// Shapes: weights and gradient are flat vectors of all tensors(), one after another
// (common/job/parameter_layout.h). Threads: one at a time.
#ifndef CATCHMENT_WORKER_MODEL_TRAINABLE_H_
#define CATCHMENT_WORKER_MODEL_TRAINABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/job/parameter_layout.h"
#include "kernels/backend.h"
#include "worker/model/pass_observer.h"

namespace catchment {

struct Minibatch {
  const float* inputs = nullptr;    // of synthetic samples null
  const int32_t* labels = nullptr;  // as inputs; null if there are targets
  // Names each sample: dropout's masks follow from the seed and this. Give a sample another name in each
  // epoch. Only read by Train, and only if something there is left to chance.
  const uint64_t* sample_ids = nullptr;
  int samples = 0;  // 1 .. max_batch_size
  // For data with real-valued targets: samples x the model's outputs.
  const float* targets = nullptr;
};

class Trainable {
 public:
  virtual ~Trainable() = default;

  virtual const std::vector<TensorSpec>& tensors() const = 0;
  // Returns a description for people: "cpu: oneDNN 2.6.3, AVX-512, 2 threads".
  virtual std::string device() const = 0;

  // Lets the device reach these weights, gradients or inputs of later calls directly: kernels/backend.h, Pin.
  virtual std::unique_ptr<Pinning> Pin(absl::Span<const float> values) { return nullptr; }

  // gradient = d (mean loss over the minibatch) / d weights, dropout on.
  virtual Score Train(absl::Span<const float> weights, const Minibatch& batch, absl::Span<float> gradient,
                      PassObserver* observer) = 0;

  // Estimates the means and variances for batch_norm in Evaluate with the same weights: those of the
  // minibatches that `next` returns until it returns false, which are passed forward as in training, without
  // dropout (Wu and Johnson 2021, arXiv:2105.07576). A model without batch_norm asks for none.
  virtual void EstimateStatistics(absl::Span<const float> weights,
                                  absl::FunctionRef<bool(Minibatch*)> next) = 0;

  // A result of EstimateStatistics: PyTorch's name, such as batch_norm1.running_mean, and a value for each
  // channel.
  struct Statistic {
    std::string name;
    absl::Span<const float> values;  // until the next estimate
  };
  virtual std::vector<Statistic> statistics() const { return {}; }

  // Scores a minibatch without a gradient, dropout off.
  virtual Score Evaluate(absl::Span<const float> weights, const Minibatch& batch) = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_MODEL_TRAINABLE_H_
