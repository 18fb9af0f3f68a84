// Replaces a network if only the load of training on servers and network is needed: a step sleeps, so that
// many workers fit on few cores, and its gradient consists of fixed numbers.
//
//   step = step_ms, or with spread sigma > 0: step_ms * exp(sigma z - sigma^2 / 2), z standard normal, whose
//          mean is step_ms
//   forward:   for each layer, first to last: its weights are asked for, then step / (3 layers) pass
//   backward:  for each layer, last to first: step * 2 / (3 layers) pass, then its gradient is final
//
// The time that the observer uses on the pass's thread is added, as in a network. Otherwise the pass
// sleeps to moments that are set at its beginning: a late awakening shortens the next sleep, and does not add
// up. z follows from the seed and from the name of the minibatch's first sample.
//
// The gradient's values lie within +-0.001. They are written if the buffer does not hold them yet, by its
// first and last value of a layer: a caller who leaves the gradient alone, or changes all of it, gets it
// whole, and a buffer that stays as it was costs nothing.
#ifndef CATCHMENT_WORKER_MODEL_SYNTHETIC_MODEL_H_
#define CATCHMENT_WORKER_MODEL_SYNTHETIC_MODEL_H_

#include <memory>
#include <string>
#include <vector>

#include "common/base/timer.h"
#include "common/job/model_shapes.h"
#include "proto/job.pb.h"
#include "worker/model/trainable.h"

namespace catchment {

class SyntheticModel final : public Trainable {
 public:
  // `layers`: what InferShapes makes of `config`, which is complete and valid.
  SyntheticModel(const v1::SyntheticModel& config, const std::vector<LayerShape>& layers, uint64_t seed,
                 std::unique_ptr<Timer> timer);

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  // Returns "synthetic: 100 ms a step".
  std::string device() const override;

  // Returns a loss of 0 and no correct sample.
  Score Train(absl::Span<const float> weights, const Minibatch& batch, absl::Span<float> gradient,
              PassObserver* observer) override;
  void EstimateStatistics(absl::Span<const float>, absl::FunctionRef<bool(Minibatch*)>) override {}
  // Returns at once, with no sample scored.
  Score Evaluate(absl::Span<const float> weights, const Minibatch& batch) override { return Score(); }

 private:
  double StepSeconds(const Minibatch& batch) const;

  const v1::SyntheticModel config_;
  const std::vector<TensorSpec> tensors_;
  const std::vector<Range> layers_;  // in the flat vector
  const uint64_t seed_;
  const std::unique_ptr<Timer> timer_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_MODEL_SYNTHETIC_MODEL_H_
