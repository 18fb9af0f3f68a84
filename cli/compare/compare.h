// `catchment compare JOB --algorithms=... --out=DIR`: many runs, one report.
//
// Read on in compare_plan.h (which runs), compare_runs.h (carrying them out), collect.h (what came of them)
// and cli/report/findings.h (what that shows).
#ifndef CATCHMENT_CLI_COMPARE_COMPARE_H_
#define CATCHMENT_CLI_COMPARE_COMPARE_H_

#include <ostream>
#include <string>
#include <vector>

#include "cli/compare/compare_options.h"
#include "cli/local_cluster.h"
#include "cli/process.h"
#include "cli/train_monitor.h"

namespace catchment {

struct CompareStreams {
  std::ostream* out;
  std::ostream* err;
  int columns = 0;  // of the terminal behind `out`; 0: none
};

// From the command line to the exit code (see CompareHelp). Call from the main thread, before any other is
// started.
int CompareMain(const std::vector<std::string>& args);

// The same with everything handed in.
int RunCompare(const CompareOptions& options, const DaemonPaths& daemons, const TrainBounds& bounds,
               SignalWaiter* signals, const CompareStreams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_COMPARE_H_
