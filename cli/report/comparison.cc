#include "cli/report/comparison.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace catchment {

std::vector<const RunResult*> RunsOf(const Comparison& comparison, const std::string& algorithm,
                                     int workers) {
  std::vector<const RunResult*> runs;
  for (const RunResult& run : comparison.runs) {
    if (run.done && run.algorithm == algorithm && run.workers == workers) runs.push_back(&run);
  }
  return runs;
}

std::string DescribeStragglers(const Comparison& comparison) {
  std::vector<std::string> words;
  for (const std::string& straggler : comparison.stragglers) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(straggler, ':');
    words.push_back(absl::StrCat("worker ", parts.first, " made ", absl::StripSuffix(parts.second, "x"),
                                 " times slower"));
  }
  return absl::StrJoin(words, ", ");
}

}  // namespace catchment
