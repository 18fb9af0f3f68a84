#include "cli/compare/comparison_runs.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "cli/compare/compare_runs.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace catchment {
namespace {

// Appends what each run of a search tried, rung by rung.
void AppendTrials(const PlannedSearch& planned, const SearchResult& result,
                  std::vector<SearchTrialResult>* trials) {
  SearchTrialResult* deciding = nullptr;
  trials->reserve(trials->size() + planned.rungs.size() * planned.trials.size());
  for (size_t rung = 0; rung < result.runs.size(); ++rung) {
    const RungResult& of_rung = result.halving.rungs[rung];
    for (size_t i = 0; i < of_rung.trials.size(); ++i) {
      const int trial = of_rung.trials[i];
      const Hyperparameters& tried = planned.trials[trial];
      SearchTrialResult& one = trials->emplace_back();
      one.rung = static_cast<int>(rung) + 1;
      one.share = of_rung.rung.share;
      one.run = result.runs[rung][i];
      one.run.algorithm = planned.algorithm;
      one.run.workers = planned.workers;
      one.run.learning_rate = tried.learning_rate;
      one.run.momentum = tried.momentum;
      if (trial == result.halving.best && of_rung.scores[i].has_value()) deciding = &one;
    }
  }
  if (deciding != nullptr) deciding->chosen = true;
}

}  // namespace

absl::Status ComparisonRuns::Run() {
  RETURN_IF_ERROR(MakePlan(options_, given_, {}).status());
  while (true) {
    trials_.clear();
    RETURN_IF_ERROR(Search());
    ASSIGN_OR_RETURN(plan_, MakePlan(options_, given_, found_));
    RETURN_IF_ERROR(RunMissing(plan_.runs, directory_, launcher_, streams_, &signal_));
    // Runs and searches of the old data are done again.
    ASSIGN_OR_RETURN(const bool changed, directory_.TakeChange(streams_.out));
    if (!changed) return absl::OkStatus();
  }
}

absl::Status ComparisonRuns::Search() {
  ASSIGN_OR_RETURN(const std::vector<PlannedSearch> planned, PlanSearches(options_, given_));
  if (planned.empty()) return absl::OkStatus();
  std::vector<catchment::Search> searches;
  double cost = 0;
  for (const PlannedSearch& one : planned) {
    cost += CostOf(one.rungs);
    searches.push_back({absl::StrCat(one.algorithm, ", ", Plural(one.workers, "worker")), one.rungs,
                        [this, &one](int trial, int rung, double share) {
                          return PlanTrial(options_, given_, one, trial, rung, share);
                        },
                        0});
  }
  *streams_.out << "searching for " << Plural(planned.size(), "learning rate") << ", which costs as much as "
                << Plural(std::llround(cost), "more run") << "; --search=none keeps those of the job\n"
                << std::flush;
  ASSIGN_OR_RETURN(const std::vector<SearchResult> results,
                   RunSearches(searches, directory_, launcher_, streams_, &signal_));
  for (size_t i = 0; i < planned.size(); ++i) {
    const PlannedSearch& one = planned[i];
    AppendTrials(one, results[i], &trials_);
    const int best = results[i].halving.best;
    if (best < 0) continue;
    found_[{one.algorithm, one.workers}] = one.trials[best];
    *streams_.out << one.algorithm << ", " << Plural(one.workers, "worker") << ": "
                  << ToString(one.trials[best]) << '\n'
                  << std::flush;
  }
  return absl::OkStatus();
}

Comparison ComparisonRuns::Result() const {
  Comparison comparison = Collect(options_, directory_, plan_);
  comparison.untuned = UntunedRates(options_, given_);
  comparison.searched = trials_;
  return comparison;
}

}  // namespace catchment
