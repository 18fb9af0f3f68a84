// The learning rate's factor in schedule PLATEAU (proto/job.proto). It is reduced when the test loss no
// longer falls, as by PyTorch's ReduceLROnPlateau in mode "min" with a relative threshold and no cooldown.
// For the loss of each evaluation:
//   loss < (1 - threshold) * best:  best = loss ; bad = 0
//   otherwise:                      bad += 1, and once bad > patience:
//                                   factor = max(factor * f_step, f_min) ; bad = 0
// where f_step is Schedule.factor and f_min is Schedule.final_fraction. A NaN is not an improvement.
//
// Difference: PyTorch does not reduce a learning rate that would change by less than its eps, 1e-8.
// Threads: not thread-safe. It has no clock: it counts evaluations.
#ifndef CATCHMENT_SERVER_CONTROL_PLATEAU_H_
#define CATCHMENT_SERVER_CONTROL_PLATEAU_H_

#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"

namespace catchment {

class Plateau {
 public:
  // `schedule` has decay PLATEAU and its defaults filled in. `from` is the state of a resumed job, or empty.
  Plateau(const v1::Schedule& schedule, const v1::PlateauState& from);

  // Records the loss of an evaluation. Returns true if the factor was reduced.
  bool Observe(double loss);

  // Takes the state of another object.
  void Restore(const v1::PlateauState& state) { state_ = state; }
  // Returns the factor of the learning rate.
  double factor() const { return state_.factor(); }
  const v1::PlateauState& state() const { return state_; }

 private:
  const v1::Schedule schedule_;
  v1::PlateauState state_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_PLATEAU_H_
