#include "cli/compare/search.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/compare/compare_runs.h"
#include "cli/compare/launcher.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace catchment {
namespace {

// A search whose runs have not all ended.
class OpenSearch {
 public:
  OpenSearch(const Search& search, Promotion promotion, const CompareDirectory& directory)
      : search_(search), halving_(search.rungs, promotion, search.kept), directory_(directory) {}

  // Returns the runs that may begin and are not done. Those that are done end here, the best first: in any
  // other order a trial might continue that is not among the best.
  std::vector<PlannedRun> Begin() {
    std::vector<PlannedRun> missing;
    while (true) {
      std::vector<std::pair<TrialRun, RunResult>> done;
      for (const TrialRun& next : halving_.NextRuns()) {
        absl::StatusOr<PlannedRun> run = search_.plan(next.trial, next.rung, halving_.ShareOf(next.rung));
        if (!run.ok()) {
          done.emplace_back(next, RunResult{}).second.reason = std::string(run.status().message());
        } else if (const std::string path = directory_.PathOf(*run);
                   directory_.OutcomeOf(*run) != RunOutcome::kNone) {
          // The run may have ended without a command that waited for it.
          DeleteCheckpoints(path);
          ++already_done_;
          done.emplace_back(next, CollectRun(directory_, *run));
        } else {
          open_.emplace(run->directory, next);
          missing.push_back(*std::move(run));
        }
      }
      if (done.empty()) return missing;
      std::stable_sort(done.begin(), done.end(),
                       [](const auto& a, const auto& b) { return ScoreOf(a.second) > ScoreOf(b.second); });
      for (const auto& [run, result] : done) Report(run, result);
    }
  }

  // Ends a run that Begin returned. Returns false if it is one of another search.
  bool End(const PlannedRun& run) {
    const auto found = open_.find(run.directory);
    if (found == open_.end()) return false;
    Report(found->second, CollectRun(directory_, run));
    open_.erase(found);
    return true;
  }

  // Returns lines about what Begin returned: how many runs are already done, and the rungs that begin:
  // "downpour, 4 workers, rung 2: 16 % of the budget".
  std::vector<std::string> Describe(const std::vector<PlannedRun>& missing) {
    std::vector<std::string> lines;
    const std::string label = search_.label.empty() ? "" : search_.label + ", ";
    if (const size_t done = std::exchange(already_done_, 0); done > 0) {
      lines.push_back(
          absl::StrCat(label, done, " of ", Plural(done + missing.size(), "run"), " are already done"));
    }
    for (const PlannedRun& run : missing) {
      const int rung = open_.at(run.directory).rung;
      if (!described_.insert(rung).second) continue;
      lines.push_back(
          absl::StrCat(label, "rung ", rung + 1, ": ", Percent(halving_.ShareOf(rung)), " of the budget"));
    }
    return lines;
  }

  SearchResult Result() const {
    SearchResult result = {halving_.result(), {}};
    for (size_t rung = 0; rung < result.halving.rungs.size(); ++rung) {
      std::vector<RunResult>& of_rung = result.runs.emplace_back();
      for (const int trial : result.halving.rungs[rung].trials)
        of_rung.push_back(results_.at({static_cast<int>(rung), trial}));
    }
    return result;
  }

 private:
  void Report(const TrialRun& run, const RunResult& result) {
    results_[{run.rung, run.trial}] = result;
    halving_.Report(run, ScoreOf(result));
  }

  const Search& search_;
  Halving halving_;
  const CompareDirectory& directory_;
  std::map<std::string, TrialRun> open_;              // by the run's directory
  std::map<std::pair<int, int>, RunResult> results_;  // by rung and trial
  size_t already_done_ = 0;
  std::set<int> described_;  // the rungs
};

// Carries out searches once. The result is empty if the data have changed meanwhile.
absl::StatusOr<std::vector<SearchResult>> RunOnce(const std::vector<Search>& searches,
                                                  const CompareDirectory& directory, Launcher* launcher,
                                                  const Streams& streams, int* signal) {
  const Promotion promotion = launcher->concurrent() ? Promotion::kAtOnce : Promotion::kRungByRung;
  std::vector<OpenSearch> open;
  open.reserve(searches.size());
  const SteadyClock clock;
  CompareProgress progress(streams.out, streams.out_size().columns, 0, &clock);
  const auto begin = [&](OpenSearch* one) {
    std::vector<PlannedRun> runs = one->Begin();
    progress.Expect(static_cast<int>(runs.size()));
    for (const std::string& line : one->Describe(runs)) progress.Note(line);
    return runs;
  };
  std::vector<PlannedRun> first;
  for (const Search& search : searches) {
    for (PlannedRun& run : begin(&open.emplace_back(search, promotion, directory)))
      first.push_back(std::move(run));
  }
  if (!first.empty()) {
    const auto following = [&](const PlannedRun& ended) {
      directory.NoteEnd(ended);
      const auto search =
          std::find_if(open.begin(), open.end(), [&](OpenSearch& one) { return one.End(ended); });
      if (directory.data_changed()) return std::vector<PlannedRun>();
      return begin(&*search);
    };
    RETURN_IF_ERROR(launcher->Launch(std::move(first), following, directory, &progress, signal));
  }
  std::vector<SearchResult> results;
  if (directory.data_changed()) return results;
  results.reserve(open.size());
  for (const OpenSearch& one : open) results.push_back(one.Result());
  return results;
}

}  // namespace

absl::StatusOr<std::vector<SearchResult>> RunSearches(const std::vector<Search>& searches,
                                                      const CompareDirectory& directory, Launcher* launcher,
                                                      const Streams& streams, int* signal) {
  while (true) {
    ASSIGN_OR_RETURN(std::vector<SearchResult> results,
                     RunOnce(searches, directory, launcher, streams, signal));
    ASSIGN_OR_RETURN(const bool changed, directory.TakeChange(streams.out));
    if (!changed) return results;
  }
}

}  // namespace catchment
