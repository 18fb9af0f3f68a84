// What is left of the learning rate of schedule PLATEAU (proto/job.proto): it falls when the test loss has
// stopped falling, as with PyTorch's ReduceLROnPlateau in mode "min" with a relative threshold and no
// cooldown. Of each evaluation's loss:
//   loss < (1 - threshold) * best:  best = loss ; bad = 0
//   otherwise:                      bad += 1, and once bad > patience:
//                                   factor = max(factor * f_step, f_least) ; bad = 0
// f_step is Schedule.factor, f_least Schedule.final_fraction. A loss that is NaN is not better.
//
// Departure: PyTorch leaves a rate as it is that would change by less than its eps, 1e-8; here it always
// falls.
// Threads: not thread-safe. It has no clock: it counts evaluations.
#ifndef CATCHMENT_SERVER_MASTER_PLATEAU_H_
#define CATCHMENT_SERVER_MASTER_PLATEAU_H_

#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"

namespace catchment {

class Plateau {
 public:
  // `schedule`: complete, with decay PLATEAU. `from`: where a job that is resumed was; empty for a fresh one.
  Plateau(const v1::Schedule& schedule, const v1::PlateauState& from);

  // Of one more evaluation. Returns whether the factor fell.
  bool Observe(double loss);

  // What the learning rate is multiplied with.
  double factor() const { return state_.factor(); }
  const v1::PlateauState& state() const { return state_; }

 private:
  const v1::Schedule schedule_;
  v1::PlateauState state_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_PLATEAU_H_
