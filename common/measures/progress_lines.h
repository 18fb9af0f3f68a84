// The progress of a job in lines of text, which commands show and the master logs.
//
// Threads: pure functions.
#ifndef CATCHMENT_COMMON_MEASURES_PROGRESS_LINES_H_
#define CATCHMENT_COMMON_MEASURES_PROGRESS_LINES_H_

#include <string>

#include "proto/master.pb.h"

namespace catchment {

// Returns the phase and, if there is one, its reason: "failed: training has diverged".
std::string DescribePhase(const v1::JobStatus& status);

// Returns one line: epoch, time left, samples, rate, loss, accuracies and staleness, the most important
// first, since a narrow terminal cuts it; outside of training the phase.
std::string ProgressLine(const v1::JobStatus& status);

// Returns one line about a new score of the test set, with the epoch, samples and time of the weights that
// were scored.
std::string EvaluationLine(const v1::JobStatus& status);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_MEASURES_PROGRESS_LINES_H_
