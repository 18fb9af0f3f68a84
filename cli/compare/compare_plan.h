// Which runs a comparison is made of. All jobs are checked before the first begins.
#ifndef CATCHMENT_CLI_COMPARE_COMPARE_PLAN_H_
#define CATCHMENT_CLI_COMPARE_COMPARE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/compare/compare_options.h"
#include "cli/compare/hyperparameters.h"
#include "proto/job.pb.h"

namespace catchment {

struct PlannedRun {
  std::string directory;  // within --out: "runs/downpour-4-workers-seed-2"
  std::string algorithm;
  int workers = 1;
  uint64_t seed = 1;
  double seconds = 0;  // of training that end it; 0: the job's budget does
  v1::Job job;         // complete and valid
};

// The error of an algorithm that does not support that number of workers.
struct LeftOut {
  std::string algorithm;
  int workers = 1;
  std::string reason;
};

struct ComparePlan {
  // By seed, then by workers, then by algorithm, so that a change of the machine's speed affects all equally.
  std::vector<PlannedRun> runs;
  std::vector<LeftOut> left_out;
};

// `given` is the job as the file and the overrides have it. Each algorithm takes the place of its
// `algorithm`, unless it is its preset; what the job says of the optimizer holds for all. `found`: what a
// search found for some algorithms. InvalidArgument when an algorithm does with no number of workers.
absl::StatusOr<ComparePlan> MakePlan(const CompareOptions& options, const v1::Job& given,
                                     const FoundHyperparameters& found);

// The probes of a search for one algorithm: the first seed, the most workers, a quarter of the budget.
absl::StatusOr<std::vector<PlannedRun>> PlanSearch(const CompareOptions& options, const v1::Job& given,
                                                   const std::string& algorithm);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_COMPARE_PLAN_H_
