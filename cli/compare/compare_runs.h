// The runs of a comparison that are not done, and the progress of carrying them out.
#ifndef CATCHMENT_CLI_COMPARE_COMPARE_RUNS_H_
#define CATCHMENT_CLI_COMPARE_COMPARE_RUNS_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/base/run_directory.h"
#include "cli/base/terminal.h"
#include "cli/compare/compare_directory.h"
#include "cli/compare/compare_plan.h"
#include "cli/live/progress.h"
#include "common/base/clock.h"

namespace catchment {

class Launcher;

// Carries out the runs that are not done, by `launcher`, and prints how many are.
// Errors: those of Launcher::Launch, with the signal that ended it in *signal.
absl::Status RunMissing(const std::vector<PlannedRun>& runs, const CompareDirectory& directory,
                        Launcher* launcher, const Streams& streams, int* signal);

// Creates the directory of a run without anything of an earlier one, and writes the job to it.
absl::StatusOr<RunDirectory> PrepareRun(const PlannedRun& run, const CompareDirectory& directory);

// Deletes the checkpoints of a run, which are needed only while it trains.
void DeleteCheckpoints(const std::string& run_directory);

// Returns "downpour, 4 workers, seed 2", or in a search "downpour, 4 workers, learning rate 0.1, momentum
// 0.9".
std::string LabelOf(const PlannedRun& run);

// Returns the result in the directory of a run in words: "97.81 % in 4.2 s".
std::string ResultLine(const std::string& run_directory);

// Prints a line for each run that is done, and on a terminal the progress of the current one below them.
class CompareProgress : public TrainObserver {
 public:
  // `columns` is the width of the terminal; 0: not a terminal. `runs` is the number of runs to carry out, as
  // far as it is known.
  CompareProgress(std::ostream* out, int columns, int runs, const Clock* clock)
      : line_(out, columns), runs_(runs), clock_(*clock), began_(clock->Now()) {}

  // There are more runs to carry out.
  void Expect(int runs) { runs_ += runs; }
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
  int runs_;
  const Clock& clock_;
  const double began_;
  int done_ = 0;
  std::string label_;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_COMPARE_RUNS_H_
