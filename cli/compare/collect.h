// From the directories of runs to what a report is made of.
#ifndef CATCHMENT_CLI_COMPARE_COLLECT_H_
#define CATCHMENT_CLI_COMPARE_COLLECT_H_

#include <string>
#include <vector>

#include "cli/compare/compare_directory.h"
#include "cli/compare/compare_options.h"
#include "cli/compare/compare_plan.h"
#include "cli/report/comparison.h"

namespace catchment {

// A run that has not ended as its budget wants is there with the reason, and without results.
RunResult CollectRun(const CompareDirectory& directory, const PlannedRun& run);

// Of the probes that are done, the one with the best accuracy, of equal ones, and of real targets, with the
// lowest loss; -1: none is.
int BestProbe(const std::vector<RunResult>& probes);

Comparison Collect(const CompareOptions& options, const CompareDirectory& directory, const ComparePlan& plan,
                   const FoundHyperparameters& found);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_COLLECT_H_
