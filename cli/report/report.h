// The report of a comparison.
#ifndef CATCHMENT_CLI_REPORT_REPORT_H_
#define CATCHMENT_CLI_REPORT_REPORT_H_

#include <string>
#include <vector>

#include "cli/report/chart.h"
#include "cli/report/comparison.h"
#include "cli/report/findings.h"
#include "cli/report/run_result.h"
#include "nlohmann/json.hpp"

namespace catchment {

// Returns report.html: one file that needs no others, for screens and for paper.
std::string ReportPage(const Comparison& comparison, const Findings& findings);

// Returns report.json, for programs. docs/compare.md describes its schema.
nlohmann::ordered_json ReportJson(const Comparison& comparison, const Findings& findings);

// The charts of a report, as SVG. Each is empty if there is nothing to draw.
std::string AccuracyOverTime(const Comparison& comparison, const Findings& findings, int workers);
std::string AccuracyOverSamples(const Comparison& comparison, const Findings& findings, int workers);
// Empty for one number of workers.
std::string AccuracyAtTheEnd(const Comparison& comparison, const Findings& findings);
std::string TimeToTarget(const Comparison& comparison, const Findings& findings);
// Without the numbers of workers with which a run missed the target. Empty for one number of workers.
std::string TimeToTargetOverWorkers(const Comparison& comparison, const Findings& findings);
std::string Throughput(const Comparison& comparison, const Findings& findings);
// The speed relative to one worker. Empty if no run had one worker.
std::string SpeedUp(const Comparison& comparison, const Findings& findings);
// For the largest number of workers.
std::string StalenessDistributions(const Comparison& comparison);
std::string WorkersTime(const Comparison& comparison);
std::string BytesOnTheWire(const Comparison& comparison);
std::string MomentumBars(const Comparison& comparison);

// Returns the lowest accuracy that the charts of accuracy show.
double LowestShown(const Comparison& comparison, const Findings& findings);

// Returns one curve from the runs of several seeds, whose scores have different times. Accuracy over a
// score's `x` (&TestScore::seconds, &TestScore::samples): each run is a straight line between its scores, and
// stays at its last one; the curve is their mean, its band from the lowest to the highest, once all runs have
// a score. Empty without scores.
std::vector<CurvePoint> AccuracyOver(double TestScore::*x, const std::vector<const RunResult*>& runs);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_REPORT_H_
