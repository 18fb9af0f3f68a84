// The delay limits the step: with the mean staleness tau_mean, a learning rate that trains is at most
// proportional to 1 / (1 + tau_mean).
//   tau_mean = (1 - a) * tau_mean + a * tau
//   eta'     = eta * min(f, bound / (1 + tau_mean))       f: a factor that another rule wants
// The average begins at the first tau and not at 0.
//
// Threads: it has no lock; its owner holds one.
#ifndef CATCHMENT_SERVER_RULES_STEP_BOUND_H_
#define CATCHMENT_SERVER_RULES_STEP_BOUND_H_

#include <cstdint>

#include "proto/job.pb.h"
#include "proto/wire.pb.h"

namespace catchment {

class StepBound {
 public:
  // The averaging of tau_mean if the job has no field for it.
  static constexpr double kAveraging = 0.1;

  // Takes compensation.step_bound; if it is absent, there is no bound. `lowered`: the momentum that the
  // compensation lowers, in [0, 1), which was to multiply the steps by 1 / (1 - lowered).
  StepBound(const v1::Compensation& compensation, double lowered, double averaging);

  // Takes a contribution's staleness into the mean, and returns the mean.
  double Add(double tau);
  // Returns the factor of the learning rate; `wanted` is the factor without the bound.
  double Limit(double wanted) const;

  // Writes and reads staleness_mean.
  void Save(v1::MomentumState* state) const;
  void Restore(const v1::MomentumState& state);

 private:
  const double bound_;
  const double averaging_;
  bool begun_ = false;
  double tau_mean_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_RULES_STEP_BOUND_H_
