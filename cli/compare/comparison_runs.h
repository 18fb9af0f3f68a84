// Executes a comparison: first the searches for learning rates, then the runs with the values found.
#ifndef CATCHMENT_CLI_COMPARE_COMPARISON_RUNS_H_
#define CATCHMENT_CLI_COMPARE_COMPARISON_RUNS_H_

#include <vector>

#include "absl/status/status.h"
#include "cli/base/terminal.h"
#include "cli/compare/compare.h"
#include "cli/compare/compare_directory.h"
#include "cli/compare/compare_plan.h"
#include "cli/compare/search.h"
#include "cli/report/comparison.h"

namespace catchment {

class Launcher;

class ComparisonRuns {
 public:
  // Owns none of the objects.
  ComparisonRuns(const CompareOptions& options, const v1::Job& given, const CompareDirectory& directory,
                 Launcher* launcher, const Streams& streams)
      : options_(options), given_(given), directory_(directory), launcher_(launcher), streams_(streams) {}

  // Executes the runs that are not done. All jobs are checked before the first run. Errors: those of
  // MakePlan, PlanSearches and Launcher::Launch.
  absl::Status Run();

  // Returns the content of the report, after Run.
  Comparison Result() const;

  // The signal that ended Run; 0: none.
  int signal() const { return signal_; }

 private:
  absl::Status Search();

  const CompareOptions& options_;
  const v1::Job& given_;
  const CompareDirectory& directory_;
  Launcher* const launcher_;
  const Streams& streams_;
  FoundHyperparameters found_;
  std::vector<SearchTrialResult> trials_;
  ComparePlan plan_;
  int signal_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_COMPARISON_RUNS_H_
