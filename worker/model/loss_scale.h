// Dynamic loss scaling: gradients that pass between layers as float16 are computed of scale * loss, so that
// they lie in its range, and divided by the scale afterwards. The scale is a power of two: both are exact.
//
//   a gradient with an infinity or a NaN:   scale = max(scale / 2, 1), and the minibatch is taken again
//   `period` minibatches in a row without:  scale = 2 scale
//
// Source: Micikevicius et al. 2018, arXiv:1710.03740. It departs from PyTorch's GradScaler in taking the
// minibatch again, whereas that one skips the step: so no process waits in vain for this worker's gradient.
#ifndef CATCHMENT_WORKER_MODEL_LOSS_SCALE_H_
#define CATCHMENT_WORKER_MODEL_LOSS_SCALE_H_

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"
#include "common/job/parameter_layout.h"
#include "worker/model/pass_observer.h"

namespace catchment {

class LossScale {
 public:
  // From this scale upwards even the smallest float16 above 0, 2^-24, becomes infinity.
  static constexpr float kLargest = 0x1p40f;

  LossScale(float initial, uint32_t period) : value_(initial), period_(period) {}

  float value() const { return value_; }

  void Good() {
    if (++good_ < period_) return;
    good_ = 0;
    value_ = std::min(2 * value_, kLargest);
  }

  // Halves the scale after an overflow. Returns false if it is 1 already: the overflow is not its fault.
  bool Overflow() {
    good_ = 0;
    if (value_ <= 1) return false;
    value_ = std::max(value_ / 2, 1.0f);
    return true;
  }

 private:
  float value_;
  const uint32_t period_;
  uint32_t good_ = 0;  // in a row
};

// Stands between a scaled pass and who follows it: divides each layer's gradient by the scale when it is
// there, and reports none of it before all of it is known to be finite.
class Unscaling final : public PassObserver {
 public:
  // With `first_pass` false, the weights have been there once.
  Unscaling(float scale, bool first_pass, absl::Span<float> gradient, PassObserver* observer)
      : factor_(1 / scale), first_pass_(first_pass), gradient_(gradient), observer_(*observer) {}

  void BeforeForward(Range parameters) override {
    if (first_pass_) observer_.BeforeForward(parameters);
  }
  void AfterBackward(Range parameters) override;

  bool finite() const { return finite_; }
  void TellAll() { observer_.AfterBackward({0, static_cast<int64_t>(gradient_.size())}); }

 private:
  const float factor_;
  const bool first_pass_;
  const absl::Span<float> gradient_;
  PassObserver& observer_;
  bool finite_ = true;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_MODEL_LOSS_SCALE_H_
