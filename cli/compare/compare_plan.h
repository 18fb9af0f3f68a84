// The runs of a comparison. All jobs are checked before the first run.
#ifndef CATCHMENT_CLI_COMPARE_COMPARE_PLAN_H_
#define CATCHMENT_CLI_COMPARE_COMPARE_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/compare/compare.h"
#include "proto/job.pb.h"

namespace catchment {

// The learning rate and the momentum of a job, wherever its algorithm has them. A search tries a small grid
// of them, once, as Omnivore does repeatedly (Hadjis et al. 2016, arXiv:1606.04487).
struct Hyperparameters {
  float learning_rate = 0;
  std::optional<float> momentum;  // empty: the optimizer has none
};

// The results of searches by algorithm.
using FoundHyperparameters = std::map<std::string, Hyperparameters>;

// Return or set those of the job's kind of contribution (common/job/contribution_kinds.h). The job is
// complete.
Hyperparameters HyperparametersOf(const v1::Job& job);
void SetHyperparameters(const Hyperparameters& hyperparameters, v1::Job* job);

// Returns {0, 0.3, 0.6, 0.9} x {learning rate, a tenth of it}; without momentum only the latter.
std::vector<Hyperparameters> SearchGrid(const Hyperparameters& start);

// Returns "learning rate 0.03, momentum 0.6".
std::string ToString(const Hyperparameters& hyperparameters);

struct PlannedRun {
  std::string directory;  // within --out: "runs/downpour-4-workers-seed-2"
  std::string algorithm;
  int workers = 1;
  uint64_t seed = 1;
  double seconds = 0;  // the limit of training; 0: the job's budget
  v1::Job job;         // complete and valid
};

// The error of an algorithm that does not support that number of workers.
struct LeftOut {
  std::string algorithm;
  int workers = 1;
  std::string reason;
};

struct ComparePlan {
  // Ordered by seed, then by workers, then by algorithm, so that a change of the machine's speed affects all
  // algorithms equally.
  std::vector<PlannedRun> runs;
  std::vector<LeftOut> left_out;
};

// Returns the runs of a comparison. `given` is the job of the file and the overrides. Each algorithm replaces
// its `algorithm`, unless it is the job's preset, with the changes of --set; the job's optimizer is used for all.
// `found` has the results of searches. InvalidArgument if an algorithm supports none of the numbers of workers.
absl::StatusOr<ComparePlan> MakePlan(const CompareOptions& options, const v1::Job& given,
                                     const FoundHyperparameters& found);

// Returns the job of one run with the algorithm of `given`, complete and valid, with this share of the budget.
absl::StatusOr<v1::Job> JobWithShare(const CompareOptions& options, const v1::Job& given, int workers,
                                     uint64_t seed, double share);

// Returns the runs of a search for one algorithm: with the first seed, the most workers, and a quarter of the
// budget.
absl::StatusOr<std::vector<PlannedRun>> PlanSearch(const CompareOptions& options, const v1::Job& given,
                                                   const std::string& algorithm);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_COMPARE_PLAN_H_
