// How fast a job and its workers go, and where their time goes: between two readings of the status, or, of
// one alone, since each worker's registration.
//
// A worker's rates are over its own time (what its training thread spent computing and waiting), which comes
// with its counts in one message: how old that message is does not matter. Units: seconds. Threads: pure
// functions.
#ifndef CATCHMENT_COMMON_WORK_RATES_H_
#define CATCHMENT_COMMON_WORK_RATES_H_

#include <optional>

#include "proto/master.pb.h"

namespace catchment {

struct Work {
  double steps = 0;
  double samples = 0;
  double compute = 0;  // seconds, and so on
  double push = 0;
  double pull = 0;
  double data = 0;

  double seconds() const { return compute + push + pull + data; }
  // Nothing where no time was spent.
  std::optional<double> samples_per_second() const;
  std::optional<double> compute_per_step() const;
  // Of part, one of the above.
  std::optional<double> share(double part) const;
  Work& operator+=(const Work& other);
};

// `before`: an earlier reading of the same job, or null.
Work WorkOf(const v1::WorkerStatus& worker, const v1::JobStatus* before);
// Of all members together.
Work WorkOf(const v1::JobStatus& status, const v1::JobStatus* before);

// Of the whole job, over the time trained between the two readings, or, of one alone, over the last seconds
// as the master tells. Nothing while the job does not train.
std::optional<double> SamplesPerSecond(const v1::JobStatus& status, const v1::JobStatus* before);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_WORK_RATES_H_
