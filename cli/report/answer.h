// The findings in words.
#ifndef CATCHMENT_CLI_REPORT_ANSWER_H_
#define CATCHMENT_CLI_REPORT_ANSWER_H_

#include <string>
#include <vector>

#include "cli/report/findings.h"

namespace catchment {

// One or two sentences: who reached the target first, by how much, with the spread over seeds, and whether
// that is more than noise.
std::string Answer(const Comparison& comparison, const Findings& findings);

// "Synchronous training wins in ...; nowhere".
std::string WhereSynchronousWins(const Findings& findings);

// "3.1 s (2.9 to 3.3)".
std::string SecondsWithSpread(const Spread& spread);
std::string PercentWithSpread(const Spread& spread);
std::string NumberWithSpread(const Spread& spread);
std::string CountWithSpread(const Spread& spread);

// "1.6 times (1.4 to 1.8)"; without an interval where there is one seed.
std::string RatioInWords(const Ratio& ratio);

std::string MeasureInWords(Duel::Measure measure);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_ANSWER_H_
