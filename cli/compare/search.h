// Searches by successive halving (cli/compare/halving.h) whose trials are runs: those of `catchment tune`,
// and those for the learning rates of a comparison.
#ifndef CATCHMENT_CLI_COMPARE_SEARCH_H_
#define CATCHMENT_CLI_COMPARE_SEARCH_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/base/terminal.h"
#include "cli/compare/compare_directory.h"
#include "cli/compare/compare_plan.h"
#include "cli/compare/halving.h"
#include "cli/report/run_result.h"

namespace catchment {

class Launcher;

struct Search {
  std::string label;  // "downpour, 4 workers"; empty: it is the only one
  std::vector<Rung> rungs;
  // Returns the run of a trial. A trial whose job is not valid, which is an error, loses.
  std::function<absl::StatusOr<PlannedRun>(int trial, int rung, double share)> plan;
  int kept = -1;  // as that of Halving
};

struct SearchResult {
  HalvingResult halving;
  std::vector<std::vector<RunResult>> runs;  // of each rung, in the order of its trials
};

// Carries out searches side by side, without the runs that are done. A run that diverges or fails loses. If
// the launcher executes several runs at once, trials are promoted at once (Promotion).
// Errors: those of Launcher::Launch, with the signal that ended it in *signal.
absl::StatusOr<std::vector<SearchResult>> RunSearches(const std::vector<Search>& searches,
                                                      const CompareDirectory& directory, Launcher* launcher,
                                                      const Streams& streams, int* signal);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_SEARCH_H_
