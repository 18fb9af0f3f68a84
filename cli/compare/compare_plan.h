// The runs of a comparison. All jobs are checked before the first run.
#ifndef CATCHMENT_CLI_COMPARE_COMPARE_PLAN_H_
#define CATCHMENT_CLI_COMPARE_COMPARE_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/compare/compare.h"
#include "cli/compare/halving.h"
#include "proto/job.pb.h"

namespace catchment {

// The learning rate and the momentum of a job, wherever its algorithm has them.
struct Hyperparameters {
  float learning_rate = 0;
  std::optional<float> momentum;  // empty: the optimizer has none
};

// The results of searches by algorithm and number of workers.
using FoundHyperparameters = std::map<std::pair<std::string, int>, Hyperparameters>;

// Return or set those of the job's kind of contribution (common/job/contribution_kinds.h). The job is
// complete.
Hyperparameters HyperparametersOf(const v1::Job& job);
void SetHyperparameters(const Hyperparameters& hyperparameters, v1::Job* job);

// The values that a search tries. A step is learning_rate / (1 - momentum), how far one gradient moves the
// weights in total.
struct SearchSpace {
  Hyperparameters own;                 // those of the complete job, which are tried as well
  std::optional<float> learning_rate;  // a value that is given, for every momentum
  double largest_step = 0;             // otherwise: this times 1, 0.5, 0.25, 0.1 and 0.05
  std::vector<std::optional<float>> momenta;
};

// Returns the space for an algorithm. `given` has the algorithm, `complete` is the same job, complete and
// valid, and `set` the values of --set. The steps are the same for all algorithms with the same kind of
// optimizer, around the job's own if it has one, otherwise around 0.5 with SGD, and around the default with
// other kinds; beside them is that of the job or its preset. Only if the preset limits the step by the number
// of workers (StepLimit), the largest is the limit.
SearchSpace SpaceOf(const v1::Job& given, const v1::Job& complete, const v1::Job& set);

// Returns the points of the space: those of the job, then the others from the smallest step.
std::vector<Hyperparameters> SearchGrid(const SearchSpace& space);

// Sets a constant learning rate, after the job's warm-up.
void KeepLearningRate(v1::Job* job);

// Returns "learning rate 0.03, momentum 0.6".
std::string ToString(const Hyperparameters& hyperparameters);

struct PlannedRun {
  std::string directory;  // within --out: "runs/downpour-4-workers-seed-2"
  std::string algorithm;
  int workers = 1;
  uint64_t seed = 1;
  double seconds = 0;  // the limit of training; 0: the job's budget
  v1::Job job;         // complete and valid
  std::string trial;   // in a search: a description of the trial
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
// its `algorithm`, unless it is the job's preset, with the changes of --set; the job's optimizer is used for
// all. `found` has the results of searches. InvalidArgument if an algorithm supports none of the numbers of
// workers.
absl::StatusOr<ComparePlan> MakePlan(const CompareOptions& options, const v1::Job& given,
                                     const FoundHyperparameters& found);

// Returns the job of one run with the algorithm of `given`, complete and valid, with this share of the
// budget.
absl::StatusOr<v1::Job> JobWithShare(const CompareOptions& options, const v1::Job& given, int workers,
                                     uint64_t seed, double share);

// A search for the learning rate and the momentum of an algorithm with a number of workers, which costs as
// much as one run of the whole budget.
struct PlannedSearch {
  std::string algorithm;
  int workers = 1;
  // At least two that the algorithm supports. The first, of the job or its preset, is in every rung.
  std::vector<Hyperparameters> trials;
  std::vector<Rung> rungs;
};

// Returns the searches of a comparison: none with SearchKind::kNone, for a synthetic model, which learns
// nothing, and if --set leaves nothing to search. InvalidArgument if the share of a budget cannot be
// computed.
absl::StatusOr<std::vector<PlannedSearch>> PlanSearches(const CompareOptions& options, const v1::Job& given);

// Returns the run of a trial. Its seed is the one after those of the report. Its learning rate does not
// decay: the whole run has hardly lowered it by then, and short runs that end with a low rate prefer a higher
// one than long runs do.
absl::StatusOr<PlannedRun> PlanTrial(const CompareOptions& options, const v1::Job& given,
                                     const PlannedSearch& search, int trial, int rung, double share);

// Returns a sentence that says which learning rates are not the result of a search; empty if all are.
std::string UntunedRates(const CompareOptions& options, const v1::Job& given);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_COMPARE_PLAN_H_
