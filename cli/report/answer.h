// The findings in words.
#ifndef CATCHMENT_CLI_REPORT_ANSWER_H_
#define CATCHMENT_CLI_REPORT_ANSWER_H_

#include <string>
#include <vector>

#include "cli/report/findings.h"

namespace catchment {

// Returns one or two sentences: the algorithm that reached the target first, the ratio to the next one with
// its spread over seeds, and whether the difference is more than noise.
std::string Answer(const Comparison& comparison, const Findings& findings);

// Returns sentences that list where synchronous and where asynchronous training is faster; empty without duels.
std::string WhereSynchronousWins(const Findings& findings);

// Each returns a mean and its range: "3.1 s (2.9 to 3.3)".
std::string SecondsWithSpread(const Spread& spread);
std::string PercentWithSpread(const Spread& spread);
std::string NumberWithSpread(const Spread& spread);
std::string CountWithSpread(const Spread& spread);

// Returns "1.6 times (1.4 to 1.8)", without an interval if there is one seed.
std::string RatioInWords(const Ratio& ratio);

std::string MeasureInWords(Duel::Measure measure);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_ANSWER_H_
