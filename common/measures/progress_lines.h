// The progress of a job in lines of text, which commands show and the master logs.
//
// Threads: pure functions.
#ifndef CATCHMENT_COMMON_MEASURES_PROGRESS_LINES_H_
#define CATCHMENT_COMMON_MEASURES_PROGRESS_LINES_H_

#include <optional>
#include <string>

#include "proto/master.pb.h"

namespace catchment {

// Returns the phase and, if there is one, its reason: "failed: training has diverged".
std::string DescribePhase(const v1::JobStatus& status);

// Returns the part of the budget that is spent, from 0 to 1; nothing if the budget is unknown.
std::optional<double> ShareDone(const v1::JobStatus& status);

// Returns one line: share, test accuracy, time left, loss, rate and more, the most important first; outside
// of training the phase. Leaves out what does not fit into `columns`, if these are not 0.
std::string ProgressLine(const v1::JobStatus& status, int columns = 0);

// Returns one line about a new score of the test set, with the epoch, samples and time of the weights that
// were scored. `columns` as above.
std::string EvaluationLine(const v1::JobStatus& status, int columns = 0);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_MEASURES_PROGRESS_LINES_H_
