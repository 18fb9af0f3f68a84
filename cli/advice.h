// What a look at a running job's status warns of, and what to do about it. docs/operating.md has the table.
//
// Every rule has a bound with a reason, in advice.cc, and keeps silent until there is enough to judge by: a
// healthy job that has just begun is warned of nothing.
//
// Threads: pure functions of the status.
#ifndef CATCHMENT_CLI_ADVICE_H_
#define CATCHMENT_CLI_ADVICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "proto/master.pb.h"

namespace catchment {

struct Warning {
  std::string code;                // for programs: it does not change
  std::optional<uint32_t> worker;  // which one it is of, where it is of one
  std::optional<uint32_t> shard;
  double measured = 0;  // in the unit of the bound; docs/operating.md says which
  double bound = 0;
  std::string found;   // what was measured, against what
  std::string why;     // it matters
  std::string advice;  // what to do
};

std::vector<Warning> Advise(const v1::JobStatus& status);

// The mean staleness that a job's algorithm leads one to expect, in versions.
//
// By Little's law the number of contributions under way is their rate times their mean time under way, so a
// contribution meets on average p - 1 others, p the job's workers, whatever their speeds; fewer where workers
// are not always at it. In groups, what is under way is k groups; updates made of c contributions make c
// times fewer versions (n-softsync: about n, arXiv:1511.05950, 3.1). With n pushes to a fetch, n =
// fetch_period / push_period, the j-th of them has also met j - 1 of its own and (j - 1) (p - 1) others. A
// staleness_bound bounds how far workers are apart, not this mean. An emulated_delay is added.
double ExpectedStaleness(const v1::Job& job);

}  // namespace catchment

#endif  // CATCHMENT_CLI_ADVICE_H_
