// Carries runs out, one after another, each in its directory.
#ifndef CATCHMENT_CLI_COMPARE_COMPARE_RUNS_H_
#define CATCHMENT_CLI_COMPARE_COMPARE_RUNS_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/compare/compare.h"
#include "cli/compare/compare_directory.h"
#include "cli/compare/compare_plan.h"
#include "cli/local_cluster.h"
#include "cli/process.h"
#include "cli/progress.h"
#include "cli/run_directory.h"
#include "cli/train_monitor.h"
#include "common/clock.h"

namespace catchment {

// Carries out the runs of a comparison. Does not own the objects that it refers to.
struct CompareRunner {
  const CompareOptions& options;
  const DaemonPaths& daemons;
  const TrainBounds bounds;
  const CompareDirectory& directory;
  SignalWaiter* signals;
  std::ostream* out;
  int columns = 0;  // of the terminal behind `out`; 0: not a terminal

  // Carries out the runs that are not done. Prints the reason if one fails, and continues with the next.
  // Errors: Aborted if a signal ended a run, with the signal in *signal; those of writing to the directory.
  absl::Status RunMissing(const std::vector<PlannedRun>& runs, int* signal) const;
};

// Returns "downpour, 4 workers, seed 2".
std::string LabelOf(const PlannedRun& run);

// Returns the result of a run in words: "97.81 % in 4.2 s".
std::string ResultLine(const RunDirectory& directory);

// Prints a line for each run that is done, and on a terminal the progress of the current one below them.
class CompareProgress : public TrainObserver {
 public:
  // `columns` is the width of the terminal; 0: not a terminal. `runs` is the number of runs to carry out.
  CompareProgress(std::ostream* out, int columns, int runs, const Clock* clock)
      : line_(out, columns), runs_(runs), clock_(*clock), began_(clock->Now()) {}

  void Begin(const std::string& label) { label_ = label; }
  // Prints `result`, the outcome of the run.
  void End(const std::string& result);

  void Update(const v1::JobStatus& status) override;
  void Note(const std::string& text) override { line_.Write(text); }
  void Clear() override { line_.Clear(); }

 private:
  // Returns "[ 5/36] ".
  std::string Head() const;
  // Returns the time left for all runs, estimated from those that are done; empty before the first.
  std::string TimeLeft() const;

  StatusLine line_;
  const int runs_;
  const Clock& clock_;
  const double began_;
  int done_ = 0;
  std::string label_;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_COMPARE_RUNS_H_
