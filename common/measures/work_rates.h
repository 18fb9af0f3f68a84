// The rates of a job and its workers, and how they spend their time: between two readings of the status, or,
// for a single reading, since each worker's registration.
//
// A worker's rates are relative to its own time (the time that its training thread has spent computing and
// waiting), which is sent with its counts in one message, so the age of the message has no effect. Units:
// seconds. Threads: pure functions.
#ifndef CATCHMENT_COMMON_MEASURES_WORK_RATES_H_
#define CATCHMENT_COMMON_MEASURES_WORK_RATES_H_

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
  double bytes = 0;      // of contributions and weights, both ways
  double exchanges = 0;  // that have ended: pushes that return weights, and exchanges
  double bytes_read = 0;
  double read = 0;  // seconds of the loader's threads

  double seconds() const { return compute + push + pull + data; }
  // Each returns nothing if no time was spent.
  std::optional<double> samples_per_second() const;
  std::optional<double> compute_per_step() const;
  // Returns the bytes that were sent and received in a second of that time, and for each step.
  std::optional<double> bytes_per_second() const;
  std::optional<double> bytes_per_step() const;
  std::optional<double> exchanges_per_step() const;
  // Returns the bytes that were read from files in a second of that time.
  std::optional<double> bytes_read_per_second() const;
  // Returns the fraction of the time in `part`, one of the members above. That of `read` may exceed 1.
  std::optional<double> share(double part) const;
  Work& operator+=(const Work& other);
};

// Returns the work of a worker. `before` is an earlier reading of the same job, or null.
Work WorkOf(const v1::WorkerStatus& worker, const v1::JobStatus* before);
// Returns the sum over all members.
Work WorkOf(const v1::JobStatus& status, const v1::JobStatus* before);

// Returns the rate of the whole job over the training time between the two readings, or, for a single
// reading, the master's rate over the last seconds. Nothing while the job does not train.
std::optional<double> SamplesPerSecond(const v1::JobStatus& status, const v1::JobStatus* before);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_MEASURES_WORK_RATES_H_
