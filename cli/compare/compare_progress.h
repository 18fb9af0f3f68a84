// What `catchment compare` says while its runs go on: a line for each that is done, and on a terminal one
// more, of the run under way, redrawn in place.
#ifndef CATCHMENT_CLI_COMPARE_COMPARE_PROGRESS_H_
#define CATCHMENT_CLI_COMPARE_COMPARE_PROGRESS_H_

#include <ostream>
#include <string>

#include "cli/compare/compare_plan.h"
#include "cli/progress.h"
#include "common/clock.h"

namespace catchment {

// "downpour, 4 workers, seed 2".
std::string LabelOf(const PlannedRun& run);

class CompareProgress : public TrainObserver {
 public:
  // `columns` is the terminal's width; 0: not a terminal. `runs`: those that are missing.
  CompareProgress(std::ostream* out, int columns, int runs, const Clock* clock)
      : out_(*out), columns_(columns), runs_(runs), clock_(*clock), began_(clock->Now()) {}

  void Begin(const std::string& label);
  // `result` says how the run ended.
  void End(const std::string& result);

  void Update(const v1::JobStatus& status) override;
  // What went wrong in a run, say.
  void Note(const std::string& text) override;
  void Clear() override;

 private:
  // "[ 5/36] ".
  std::string Head() const;
  // Of all runs, from how long those took that are done; empty before the first.
  std::string TimeLeft() const;

  std::ostream& out_;
  const int columns_;
  const int runs_;
  const Clock& clock_;
  const double began_;
  int done_ = 0;
  std::string label_;
  bool drawn_ = false;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_COMPARE_PROGRESS_H_
