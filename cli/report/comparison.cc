#include "cli/report/comparison.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/machine.h"

namespace catchment {
namespace {

// Returns the text after `separator` in the first line that begins with `key`.
std::string Field(const std::string& file, const std::string& key, char separator) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(key, 0) != 0 || line.find(separator) == std::string::npos) continue;
    const std::string value(absl::StripAsciiWhitespace(line.substr(line.find(separator) + 1)));
    return std::string(absl::StripSuffix(absl::StripPrefix(value, "\""), "\""));
  }
  return "unknown";
}

// Returns "0, 2 and 3".
std::string Enumerated(std::vector<std::string> words) {
  const std::string last = words.back();
  words.pop_back();
  return words.empty() ? last : absl::StrCat(absl::StrJoin(words, ", "), " and ", last);
}

}  // namespace

Machine ThisMachine() {
  utsname name = {};
  uname(&name);
  return {Field("/proc/cpuinfo", "model name", ':'), AvailableProcessors(),
          static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)),
          absl::StrCat(Field("/etc/os-release", "PRETTY_NAME", '='), ", ", name.sysname, " ", name.release)};
}

std::vector<const RunResult*> RunsOf(const Comparison& comparison, const std::string& algorithm,
                                     int workers) {
  std::vector<const RunResult*> runs;
  for (const RunResult& run : comparison.runs) {
    if (run.done && run.algorithm == algorithm && run.workers == workers) runs.push_back(&run);
  }
  return runs;
}

double SearchCost(const Comparison& comparison, const std::string& algorithm, int workers) {
  double cost = 0;
  for (const SearchTrialResult& trial : comparison.searched) {
    if (trial.run.algorithm == algorithm && trial.run.workers == workers) cost += trial.share;
  }
  return cost;
}

std::string DescribeStragglers(const Comparison& comparison) {
  std::vector<std::pair<std::string, std::vector<std::string>>> slowed;  // factor and workers
  std::vector<std::string> words;
  for (const std::string& straggler : comparison.stragglers) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(straggler, ':');
    absl::string_view who = parts.first;
    const std::string factor(absl::StripSuffix(parts.second, "x"));
    if (absl::ConsumeSuffix(&who, "%steps")) {
      words.push_back(absl::StrCat(who, " % of the steps slowed ", factor, " times"));
    } else if (absl::ConsumeSuffix(&who, "%")) {
      words.push_back(absl::StrCat(who, " % of the workers slowed ", factor, " times"));
    } else {
      const auto same =
          std::find_if(slowed.begin(), slowed.end(), [&](const auto& one) { return one.first == factor; });
      auto& workers = same != slowed.end() ? same->second
                                           : slowed.emplace_back(factor, std::vector<std::string>()).second;
      workers.emplace_back(who);
    }
  }
  for (const auto& [factor, workers] : slowed) {
    words.push_back(absl::StrCat(workers.size() > 1 ? "workers " : "worker ", Enumerated(workers), " slowed ",
                                 factor, " times"));
  }
  return absl::StrJoin(words, ", ");
}

}  // namespace catchment
