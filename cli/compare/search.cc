#include "cli/compare/search.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/compare/compare_runs.h"
#include "common/text.h"

namespace catchment {
namespace {

// A search, and its runs of the current rung.
struct OpenSearch {
  explicit OpenSearch(const Search& search) : search(search), halving(search.rungs) {}

  void PlanRung() {
    plans.clear();
    if (halving.done()) return;
    for (const int trial : halving.trials())
      plans.push_back(search.plan(trial, halving.rung(), halving.share()));
  }

  void EndRung(const CompareDirectory& directory) {
    if (halving.done()) return;
    std::vector<std::optional<TrialScore>> scores;
    std::vector<RunResult>& results = runs.emplace_back();
    for (const absl::StatusOr<PlannedRun>& plan : plans) {
      RunResult& result = results.emplace_back();
      result.reason = std::string(plan.status().message());
      if (plan.ok()) result = CollectRun(directory, *plan);
      scores.push_back(ScoreOf(result));
    }
    halving.Report(std::move(scores));
  }

  const Search& search;
  Halving halving;
  std::vector<absl::StatusOr<PlannedRun>> plans;
  std::vector<std::vector<RunResult>> runs;
};

// Returns "3.85 % of the budget", or with a range if the searches differ.
std::string Shares(const std::vector<OpenSearch>& searches) {
  double low = 1, high = 0;
  for (const OpenSearch& one : searches) {
    if (one.halving.done()) continue;
    low = std::min(low, one.halving.share());
    high = std::max(high, one.halving.share());
  }
  return absl::StrCat(low < high ? absl::StrCat(Percent(low), " to ") : "", Percent(high), " of the budget");
}

}  // namespace

absl::StatusOr<std::vector<SearchResult>> RunSearches(const std::vector<Search>& searches,
                                                      const CompareDirectory& directory, Launcher* launcher,
                                                      const Streams& streams, int* signal) {
  std::vector<OpenSearch> open(searches.begin(), searches.end());
  for (int rung = 1;; ++rung) {
    std::vector<PlannedRun> runs;
    size_t trials = 0;
    for (OpenSearch& one : open) {
      one.PlanRung();
      trials += one.plans.size();
      for (const absl::StatusOr<PlannedRun>& plan : one.plans) {
        if (plan.ok()) runs.push_back(*plan);
      }
    }
    if (trials == 0) break;
    *streams.out << "rung " << rung << ": " << Plural(runs.size(), "trial") << " with " << Shares(open)
                 << '\n'
                 << std::flush;
    if (absl::Status status = RunMissing(runs, directory, launcher, streams, signal); !status.ok())
      return status;
    for (OpenSearch& one : open) one.EndRung(directory);
  }
  std::vector<SearchResult> results;
  results.reserve(open.size());
  for (OpenSearch& one : open) results.push_back({one.halving.result(), std::move(one.runs)});
  return results;
}

}  // namespace catchment
