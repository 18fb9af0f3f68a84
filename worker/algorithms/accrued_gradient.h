// Downpour SGD (Dean et al. 2012, "Large scale distributed deep networks"), and with one group of all workers
// synchronous SGD. The whole algorithm:
//   WORKER, every step:         a += g ; x -= local_learning_rate * g
//   WORKER, every push_period:  push a ; a = 0
//   server:                     a~ = sum_i b_i a_i / sum_i b_i  over the group ; w = optimizer(w, a~)
//   WORKER, every fetch_period: x = pull()
// With `mean` (gradient accumulation) a is the mean over the samples of its steps instead of the sum: with b
// samples in the step and B in a, this step's too,
//   WORKER, every step:         a += b / B * (g - a)
// Where push and pull fall on one step they are one exchange: the weights come back with the answer.
//
// The worker's lines are carried out layer by layer, within the pass that takes the gradient: a layer's part
// of a leaves as soon as it is final, and a layer's part of x is waited for in the next step, when the
// forward pass comes to it. A pull alone begins after the pass, which reads x until its end. With clip_norm
// nothing can leave before the pass has ended: the norm is of the whole a.
//
// What others than Downpour make of a gradient before they push it in every step is a GradientTransform; with
// it both periods are 1. A gradient is clipped first: the transform's momentum is of clipped gradients.
#ifndef CATCHMENT_WORKER_ALGORITHMS_ACCRUED_GRADIENT_H_
#define CATCHMENT_WORKER_ALGORITHMS_ACCRUED_GRADIENT_H_

#include <memory>
#include <optional>
#include <vector>

#include "worker/algorithms/algorithm.h"
#include "worker/algorithms/gradient_transform.h"

namespace catchment {

class AccruedGradient final : public Algorithm, private PassObserver {
 public:
  // `transform` may be null.
  AccruedGradient(const v1::AccruedGradient& config, int64_t num_parameters, Parameters* parameters,
                  std::optional<float> clip_norm = {},
                  std::unique_ptr<GradientTransform> transform = nullptr);

  absl::Status Start(uint64_t version) override;
  absl::Status Run(const Step& step, Gradient gradient) override;
  bool under_way() const override { return under_way_; }
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
  const std::optional<float> clip_norm_;
  const std::unique_ptr<GradientTransform> transform_;
  Parameters& parameters_;
  std::vector<float> x_;  // local weights
  std::vector<float> a_;  // accrued gradient, the sum or the mean
  std::vector<float> g_;  // used where a_ is more than one gradient
  uint64_t steps_ = 0;
  uint64_t since_push_ = 0;    // steps, this one too
  uint64_t since_fetch_ = 0;   // steps, this one too
  uint64_t pushed_steps_ = 0;  // in pushes
  uint32_t samples_ = 0;       // in a_, this step's too
  bool under_way_ = false;     // an operation of parameters_

  // Of the step.
  bool push_ = false;
  bool fetch_ = false;
  bool first_ = false;  // a_ is this step's gradient
  float share_ = 0;     // of the step's samples in a_'s
  absl::Status status_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_ACCRUED_GRADIENT_H_
