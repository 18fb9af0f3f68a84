// Slows the passes of a worker down, for experiments with stragglers (faults.stragglers).
#ifndef CATCHMENT_WORKER_LOOP_SLOWED_PASS_H_
#define CATCHMENT_WORKER_LOOP_SLOWED_PASS_H_

#include <functional>

#include "common/base/clock.h"
#include "common/job/parameter_layout.h"
#include "worker/model/pass_observer.h"

namespace catchment {

// Stands between a pass and the observer that follows it. Pauses after each layer for (factor - 1) times as
// long as the layer took, so that a part of the gradient leaves at the time when a slower worker would have
// it. The time that `observer` takes, which is mostly spent waiting for weights, is not multiplied. Threads:
// used by the thread of the pass.
class SlowedPass final : public PassObserver {
 public:
  // `computed` returns the seconds that count as computing, up to now; `pause` sleeps for the given seconds.
  // The observer outlives the object. The pass begins with the construction.
  SlowedPass(double factor, std::function<double()> computed, std::function<void(double)> pause,
             PassObserver* observer);

  void BeforeForward(Range parameters) override;
  void AfterBackward(Range parameters) override;
  // Pauses for what the pass computed after the last layer.
  void End();

 private:
  const double factor_;
  const std::function<double()> computed_;
  const std::function<void(double)> pause_;
  PassObserver& observer_;
  double last_;  // computed_() when the present layer began
};

// Returns `clock`'s time less the seconds for which the calling thread was ready to run and had no processor:
// those depend on the other processes of the machine, and a slower worker would not wait longer for them.
// Linux reports them; on other systems nothing is subtracted.
double SecondsWithProcessor(const Clock& clock);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_LOOP_SLOWED_PASS_H_
