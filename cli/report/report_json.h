// report.json: a comparison for programs. docs/compare.md has its schema.
#ifndef CATCHMENT_CLI_REPORT_REPORT_JSON_H_
#define CATCHMENT_CLI_REPORT_REPORT_JSON_H_

#include "cli/report/comparison.h"
#include "cli/report/findings.h"
#include "nlohmann/json.hpp"

namespace catchment {

nlohmann::ordered_json ReportJson(const Comparison& comparison, const Findings& findings);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_REPORT_JSON_H_
