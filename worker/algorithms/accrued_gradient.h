// Downpour SGD (Dean et al. 2012, "Large scale distributed deep networks"), and with one group of all workers
// synchronous SGD. The whole algorithm:
//   WORKER, every step:         a += g ; x -= local_learning_rate * g
//   WORKER, every push_period:  push a ; a = 0
//   server:                     a~ = sum_i b_i a_i / sum_i b_i  over the group ; w = optimizer(w, a~)
//   WORKER, every fetch_period: x = pull()
// With `mean` (gradient accumulation) a is the mean over the samples of its steps instead of the sum: with b
// samples in the step and B in a, this step's too,
//   WORKER, every step:         a += b / B * (g - a)
// A push and a pull in the same step are one exchange: the answer to the push has the weights.
//
// The worker's lines are carried out layer by layer, within the pass that computes the gradient: a layer's
// part of a is sent as soon as it is final, and the next step waits for a layer's part of x when the forward
// pass reaches it. A pull alone begins after the pass, which reads x until its end. With clip_norm nothing is
// sent before the pass has ended, since the norm is that of the whole a.
//
// Algorithms that push something other than the gradient in every step have a GradientTransform, and both
// periods are 1. The gradient is clipped before it is transformed.
#ifndef CATCHMENT_WORKER_ALGORITHMS_ACCRUED_GRADIENT_H_
#define CATCHMENT_WORKER_ALGORITHMS_ACCRUED_GRADIENT_H_

#include <memory>
#include <memory_resource>
#include <optional>
#include <vector>

#include "common/job/parameter_groups.h"
#include "worker/algorithms/algorithm.h"
#include "worker/algorithms/gradient_transform.h"

namespace catchment {

class AccruedGradient final : public Algorithm, private PassObserver {
 public:
  // factors: of local_learning_rate. `transform` may be null.
  AccruedGradient(const v1::AccruedGradient& config, RateFactors factors, int64_t num_parameters,
                  Parameters* parameters, const ModelMemory& memory = {}, std::optional<float> clip_norm = {},
                  std::unique_ptr<GradientTransform> transform = nullptr);

  absl::Status Start(uint64_t version) override;
  absl::Status Run(const Step& step, Gradient gradient) override;
  bool in_flight() const override { return in_flight_; }
  absl::Status Settle() override;
  absl::Status Finish() override;
  void ListState(bool at_version, WorkerState* state) override;

 private:
  void BeforeForward(Range layer) override;
  void AfterBackward(Range layer) override;

  void Accrue(Range layer);
  void StartPush();
  void Clip();
  void Begin(const Parameters::Operation& operation);
  absl::Status Await(Range layer);
  Range All() const { return {0, static_cast<int64_t>(x_.size())}; }

  const v1::AccruedGradient config_;
  const RateFactors factors_;
  const std::optional<float> clip_norm_;
  const std::unique_ptr<GradientTransform> transform_;
  Parameters& parameters_;
  // Vectors for which the model has no memory.
  std::vector<float> own_x_;
  std::pmr::vector<float> own_a_;
  std::vector<float> own_g_;
  const absl::Span<float> x_;  // local weights
  const absl::Span<float> a_;  // accrued gradient, the sum or the mean
  const absl::Span<float> g_;  // used if a_ is the sum or mean of several gradients
  uint64_t steps_ = 0;
  uint64_t since_push_ = 0;    // steps, including this one
  uint64_t since_fetch_ = 0;   // steps, including this one
  uint64_t pushed_steps_ = 0;  // in pushes
  uint32_t samples_ = 0;       // in a_, including this step's
  bool in_flight_ = false;     // an operation of parameters_

  // The state of the current step.
  bool push_ = false;
  bool fetch_ = false;
  bool first_ = false;  // a_ is this step's gradient
  float share_ = 0;     // the step's share of the samples in a_
  absl::Status status_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_ACCRUED_GRADIENT_H_
