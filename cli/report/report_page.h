// report.html: one file that needs nothing else, for a screen and for paper.
#ifndef CATCHMENT_CLI_REPORT_REPORT_PAGE_H_
#define CATCHMENT_CLI_REPORT_REPORT_PAGE_H_

#include <string>

#include "cli/report/comparison.h"
#include "cli/report/findings.h"

namespace catchment {

std::string ReportPage(const Comparison& comparison, const Findings& findings);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_REPORT_PAGE_H_
