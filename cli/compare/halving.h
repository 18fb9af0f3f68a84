// Successive halving: assigns shares of the budget to the trials of a search, and decides which continue and
// when.
//
// Everything here is a function of its arguments: it reads no clock, draws no random numbers and starts
// nothing, so that a search that was interrupted repeats its decisions.
//
// Sources: Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter
// optimization" (arXiv:1502.07943); Li et al. 2020, "A system for massively parallel hyperparameter tuning"
// (arXiv:1810.05934), for ASHA; Halton 1960 for the points; Hutter, Hoos and Leyton-Brown 2014 for the
// importance.
#ifndef CATCHMENT_CLI_COMPARE_HALVING_H_
#define CATCHMENT_CLI_COMPARE_HALVING_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace catchment {

// The better of two scores is the larger one, by `first` and among equal ones by `second`.
using TrialScore = std::pair<double, double>;

// A round of a search, in which each remaining trial starts over with this share of the full budget.
struct Rung {
  int trials = 1;
  double share = 1;
};

// One in kHalvingFactor trials of a rung continues in the next, with kHalvingFactor times the share of the
// budget.
inline constexpr int kHalvingFactor = 3;

// Returns the rungs of a search with so many trials, at least 1. The last one has the share 1 and fewer than
// kHalvingFactor trials. All rungs cost about the same.
std::vector<Rung> PlanRungs(int trials);

// Returns the cost of all runs, in full budgets.
double CostOf(const std::vector<Rung>& rungs);

// Returns the rungs up to the one that leaves a single trial, with their shares scaled so that all cost
// `cost` full budgets: for a search that is followed by runs of the setting that it finds.
std::vector<Rung> PlanRungsThatCost(int trials, double cost);

// Returns the `keep` best of `trials`, from the best to the worst; of equal ones the first are better. Those
// without a score, or with one that is not finite, are never kept, so there may be fewer.
std::vector<int> BestTrials(const std::vector<int>& trials,
                            const std::vector<std::optional<TrialScore>>& scores, int keep);

// The outcome of one rung.
struct RungResult {
  Rung rung;
  std::vector<int> trials;                        // numbers from 0
  std::vector<std::optional<TrialScore>> scores;  // of each; nothing: it failed, diverged or has not ended
};

struct HalvingResult {
  std::vector<RungResult> rungs;  // of those that had trials
  int best = -1;  // the trial with the best score of the last rung that has any; -1: no trial has a score
};

// Decides when trials continue in the next rung.
enum class Promotion {
  // A trial continues when all trials of its rung have ended.
  kRungByRung,
  // A trial continues as soon as it is among the best of one in kHalvingFactor of those that have ended
  // (ASHA): no run waits, and a few continue that are not among the best in the end.
  kAtOnce,
};

// A run of a trial with the share of a rung, which counts from 0.
struct TrialRun {
  int trial = 0;
  int rung = 0;
};

// A search: begin what NextRuns() returns, and Report the end of each, in any order, until nothing is open
// and nothing is next.
class Halving {
 public:
  // `kept` is a trial that takes the last of several places in the next rung if it is not among the best, so
  // that the result is at least as good in the last rung; -1: none. It too needs a score to continue.
  Halving(std::vector<Rung> rungs, Promotion promotion, int kept = -1);

  // Returns the runs that may begin now, each of them once.
  std::vector<TrialRun> NextRuns();
  // Ends a run; without a score it has failed or diverged, and its trial does not continue.
  void Report(const TrialRun& run, std::optional<TrialScore> score);

  double ShareOf(int rung) const { return rungs_[rung].share; }
  HalvingResult result() const;

 private:
  // Returns the trials that may run in a rung.
  std::vector<int> Candidates(int rung) const;

  const std::vector<Rung> rungs_;
  const Promotion promotion_;
  const int kept_;
  std::vector<RungResult> begun_;  // the trials of each rung that have begun
  std::vector<int> ended_;         // how many of them have ended
};

// Returns the coordinates of a trial in the unit cube, each in (0, 1): Halton's sequence, whose points cover
// the cube more evenly than random ones for any number of trials. `dimensions` is at most kMaxDimensions.
inline constexpr int kMaxDimensions = 8;
std::vector<double> TrialPoint(int trial, int dimensions);

// A dimension of a search: values that are listed, or a range.
struct SearchDimension {
  std::string path;                  // of the job's field
  std::vector<std::string> choices;  // empty: the range
  double low = 0;
  double high = 1;
  bool logarithmic = false;  // equal ratios are equally likely
  bool whole = false;        // whole numbers
};

// Reads "PATH=log:LOW..HIGH", "PATH=LOW..HIGH" or "PATH=A,B,C", in which commas within brackets separate
// nothing. `whole` is false. InvalidArgument names the mistake.
absl::StatusOr<SearchDimension> ParseDimension(const std::string& text);

// Returns the value at a coordinate in (0, 1), as a job file has it. Values of ranges have four significant
// digits.
std::string ValueAt(const SearchDimension& dimension, double coordinate);

// Returns how much of the variance of `scores` a coordinate explains, from 0 to 1: the trials are divided
// into `groups` of equal width, and the variance within them is compared with the whole (epsilon squared,
// which chance alone leaves at 0 on average; Kelley 1935). Nothing if there are no more scores than groups
// with scores, or if all scores are equal.
std::optional<double> Importance(const std::vector<double>& coordinates, const std::vector<double>& scores,
                                 int groups);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_HALVING_H_
