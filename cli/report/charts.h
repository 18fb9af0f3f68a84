// The report's pictures, as SVG. Each is empty where there is nothing to draw.
#ifndef CATCHMENT_CLI_REPORT_CHARTS_H_
#define CATCHMENT_CLI_REPORT_CHARTS_H_

#include <string>

#include "cli/report/comparison.h"
#include "cli/report/findings.h"

namespace catchment {

std::string AccuracyOverTime(const Comparison& comparison, const Findings& findings, int workers);
std::string AccuracyOverSamples(const Comparison& comparison, const Findings& findings, int workers);
std::string TimeToTarget(const Comparison& comparison, const Findings& findings);
std::string Throughput(const Comparison& comparison, const Findings& findings);
// Against one worker; empty where no run had one.
std::string SpeedUp(const Comparison& comparison, const Findings& findings);
// With the most workers.
std::string StalenessDistributions(const Comparison& comparison);
std::string WorkersTime(const Comparison& comparison);
std::string BytesOnTheWire(const Comparison& comparison);
std::string MomentumBars(const Comparison& comparison);

// The lowest accuracy that the charts of accuracy show.
double LowestShown(const Comparison& comparison, const Findings& findings);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_CHARTS_H_
