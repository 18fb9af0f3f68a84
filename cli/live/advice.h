// Derives warnings, with advice, from the status of a running job. docs/watching.md has the table.
//
// Every rule has a bound, explained in advice_rules.h, and waits for enough data: there are no warnings about
// a healthy job that has just begun.
//
// Threads: pure functions of the status.
#ifndef CATCHMENT_CLI_LIVE_ADVICE_H_
#define CATCHMENT_CLI_LIVE_ADVICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "proto/master.pb.h"

namespace catchment {

struct Warning {
  std::string code;                // stable, for programs
  std::optional<uint32_t> worker;  // the worker or the shard that it is about, if it is about one
  std::optional<uint32_t> shard;
  double measured = 0;  // in the unit of the bound, which docs/watching.md has
  double bound = 0;
  std::string found;   // the measured value and the bound
  std::string why;     // the effect
  std::string advice;  // the remedy
};

// Returns the warnings, the most urgent ones first.
std::vector<Warning> Advise(const v1::JobStatus& status);

// Returns the warnings that follow from a job alone (job_advice.cc). `job` is complete and valid.
std::vector<Warning> AdviseJob(const v1::Job& job);

// Returns the momentum that the optimizer's and asynchrony's add up to: 1 - (1 - mu) / (1 + tau), with the
// mean staleness tau (Mitliagkas et al. 2016, arXiv:1605.09774).
double TotalMomentum(double staleness, double momentum);
// Beyond this total, the presets without compensation trained less accurately (docs/results/staleness.md).
inline constexpr double kMaxTotalMomentum = 0.97;

// Returns the learning rate with which the job would make the steps of its preset at the expected staleness;
// nothing if that is not known, or nothing is stale. `job` is complete and valid.
std::optional<double> RateAtExpectedStaleness(const v1::Job& job);

// Returns the mean staleness that is expected of a job's algorithm, in versions.
//
// By Little's law the number of contributions under way is their rate times their mean time under way, so a
// contribution meets on average p - 1 others, p the job's workers, whatever their speeds; fewer if workers
// are sometimes idle. In groups, what is under way is k groups; updates made of c contributions make c
// times fewer versions (n-softsync: about n, arXiv:1511.05950, 3.1). With n pushes to a fetch, n =
// fetch_period / push_period, the j-th of them has also met j - 1 of its own and (j - 1) (p - 1) others. A
// staleness bound limits how far workers are apart, not this mean. An emulated_delay is added.
double ExpectedStaleness(const v1::Job& job);

}  // namespace catchment

#endif  // CATCHMENT_CLI_LIVE_ADVICE_H_
