// One curve from the runs of several seeds, whose scores are not of the same moments.
#ifndef CATCHMENT_CLI_REPORT_SEED_CURVE_H_
#define CATCHMENT_CLI_REPORT_SEED_CURVE_H_

#include <vector>

#include "cli/report/line_chart.h"
#include "cli/report/run_result.h"

namespace catchment {

// Accuracy over a score's `x` (&Score::seconds, &Score::samples): each run is a straight line between its
// scores, and stays at its last one; the curve is their mean, its band from the lowest to the highest, from
// where all runs have a score. Empty without scores.
std::vector<CurvePoint> AccuracyOver(double Score::*x, const std::vector<const RunResult*>& runs);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_SEED_CURVE_H_
