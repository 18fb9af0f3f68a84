// The report of a comparison.
#ifndef CATCHMENT_CLI_REPORT_REPORT_H_
#define CATCHMENT_CLI_REPORT_REPORT_H_

#include <string>

#include "cli/report/comparison.h"
#include "cli/report/findings.h"
#include "nlohmann/json.hpp"

namespace catchment {

// Returns report.html: one file that needs no others, for screens and for paper.
std::string ReportPage(const Comparison& comparison, const Findings& findings);

// Returns report.json, for programs. docs/compare.md describes its schema.
nlohmann::ordered_json ReportJson(const Comparison& comparison, const Findings& findings);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_REPORT_H_
