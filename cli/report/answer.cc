#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/report/findings.h"
#include "common/base/text.h"

namespace catchment {
namespace {

// Returns true if the "accuracy" is the share of a quadratic's initial loss that is gone.
bool IsQuadratic(const Comparison& comparison) {
  return absl::StrContains(comparison.simulated, "quadratic");
}

std::string Setting(const Comparison& comparison, int workers) {
  const char* const how = comparison.simulated.empty() ? "With "
                          : IsQuadratic(comparison)    ? "Simulated on a quadratic function, with "
                                                       : "Simulated, with ";
  std::string words = absl::StrCat(how, Plural(workers, "worker"));
  if (!comparison.stragglers.empty()) absl::StrAppend(&words, ", ", DescribeStragglers(comparison));
  return words;
}

std::string Significance(const Ratio& ratio) {
  if (!ratio.has_interval) return "one seed cannot show whether this is significant";
  const std::string correction =
      ratio.pairs > 1 ? absl::StrCat(", corrected for ", ratio.pairs, " pairs,") : "";
  const std::string interval =
      absl::StrFormat("95 %% confidence interval%s %.2f to %.2f", correction, ratio.low, ratio.high);
  return absl::StrCat(ratio.beyond_noise() ? "statistically significant" : "not statistically significant",
                      " (", interval, ")");
}

// Returns "sync took 4.10 s (3.90 to 4.30), 1.35 times as long: statistically significant (...)". The ratio
// is the geometric mean of the seeds' ratios, not the ratio of the means.
std::string Behind(const Standing& other, const Ratio& ratio) {
  return absl::StrFormat("%s took %s, %.2f times as long%s: %s", other.algorithm,
                         SecondsWithSpread(SpreadOf(other.seconds)), ratio.value,
                         ratio.has_interval ? " in the geometric mean" : "", Significance(ratio));
}

const Standing* FirstSynchronous(const Comparison& comparison,
                                 const std::vector<const Standing*>& standings) {
  for (const Standing* standing : standings) {
    if (IsSynchronous(comparison, standing->algorithm)) return standing;
  }
  return nullptr;
}

std::string NotReached(const std::vector<const Standing*>& standings) {
  std::vector<std::string> names;
  for (const Standing* standing : standings) {
    if (standing->reached()) continue;
    names.push_back(absl::StrFormat("%s (%d of %d runs; %s at the end)", standing->algorithm,
                                    standing->seconds.size(), standing->runs,
                                    PercentWithSpread(SpreadOf(standing->accuracies))));
  }
  if (names.empty()) return "";
  return absl::StrCat(" Not in every run: ", absl::StrJoin(names, ", "), ".");
}

// Returns the sentence about real targets, which have no accuracy.
std::string LowestLoss(const Standing& best) {
  return absl::StrCat(best.algorithm, " had the lowest test loss at the end, ",
                      NumberWithSpread(SpreadOf(best.losses)), ". Accuracy is not defined for real targets.");
}

std::string Fastest(const std::vector<const Standing*>& standings) {
  if (const Standing& first = *standings.front(); first.accuracies.empty() && !first.losses.empty()) {
    return LowestLoss(first);
  }
  const Standing* best = standings.front();
  for (const Standing* standing : standings) {
    if (SpreadOf(standing->throughputs).mean > SpreadOf(best->throughputs).mean) best = standing;
  }
  return absl::StrCat(best->algorithm, " trained the most samples a second, ",
                      CountWithSpread(SpreadOf(best->throughputs)), ". No run has test scores.");
}

// Returns the sentence if no run with so many workers is done.
std::string NoneDone(const Comparison& comparison, int workers) {
  size_t runs = 0, diverged = 0;
  for (const RunResult& run : comparison.runs) {
    if (run.workers != workers) continue;
    ++runs;
    diverged += run.diverged;
  }
  if (diverged == 0 || diverged < runs) return "No run with the most workers has finished.";
  return absl::StrCat(Setting(comparison, workers),
                      ", training diverged in every run; a smaller learning rate may train.");
}

// Returns the answer without the sentence about learning rates.
std::string Finding(const Comparison& comparison, const Findings& findings) {
  const std::vector<const Standing*> standings = findings.With(findings.workers);
  if (standings.empty()) return NoneDone(comparison, findings.workers);
  const std::string setting = Setting(comparison, findings.workers);
  if (findings.target <= 0) return absl::StrCat(setting, ": ", Fastest(standings));
  const double percent = 100 * findings.target;
  const std::string target = IsQuadratic(comparison) ? absl::StrFormat("a %.1f %% lower loss", percent)
                                                     : absl::StrFormat("%.1f %% test accuracy", percent);
  const Standing& winner = *standings.front();
  if (!winner.reached()) {
    return absl::StrCat(setting, ", no algorithm reached ", target, " in every run.", NotReached(standings));
  }
  std::string words = absl::StrCat(setting, ", ", winner.algorithm, " reached ", target, " first, after ",
                                   SecondsWithSpread(SpreadOf(winner.seconds)));
  if (winner.runs > 1) absl::StrAppend(&words, " over ", winner.runs, " seeds");
  absl::StrAppend(&words, ".");
  if (findings.lead.has_value()) absl::StrAppend(&words, " ", Behind(*standings[1], *findings.lead), ".");
  const Standing* synchronous = FirstSynchronous(comparison, standings);
  if (findings.lead_over_synchronous.has_value() && synchronous != standings[1]) {
    absl::StrAppend(&words, " ", Behind(*synchronous, *findings.lead_over_synchronous), ".");
  }
  return words + NotReached(standings);
}

// Returns the words between the winner and "than".
std::string WonInWords(Duel::Measure measure) {
  if (measure == Duel::kSecondsToTarget) return "reached the target sooner";
  return measure == Duel::kSamplesToTarget ? "reached the target after fewer samples"
                                           : "ended with fewer errors";
}

}  // namespace

std::string SecondsWithSpread(const Spread& spread) {
  if (spread.n < 2) return absl::StrFormat("%.2f s", spread.mean);
  return absl::StrFormat("%.2f s (%.2f to %.2f)", spread.mean, spread.low, spread.high);
}

std::string PercentWithSpread(const Spread& spread) {
  if (spread.n < 2) return absl::StrFormat("%.2f %%", 100 * spread.mean);
  return absl::StrFormat("%.2f %% (%.2f to %.2f)", 100 * spread.mean, 100 * spread.low, 100 * spread.high);
}

std::string NumberWithSpread(const Spread& spread) {
  if (spread.n < 2) return absl::StrFormat("%.4g", spread.mean);
  return absl::StrFormat("%.4g (%.4g to %.4g)", spread.mean, spread.low, spread.high);
}

std::string CountWithSpread(const Spread& spread) {
  if (spread.n < 2) return Count(std::llround(spread.mean));
  return absl::StrCat(Count(std::llround(spread.mean)), " (", Count(std::llround(spread.low)), " to ",
                      Count(std::llround(spread.high)), ")");
}

std::string RatioInWords(const Ratio& ratio) {
  if (!ratio.has_interval) return absl::StrFormat("%.2f", ratio.value);
  return absl::StrFormat("%.2f (%.2f to %.2f)", ratio.value, ratio.low, ratio.high);
}

std::string MeasureInWords(Duel::Measure measure) {
  if (measure == Duel::kSecondsToTarget) return "time to the target";
  return measure == Duel::kSamplesToTarget ? "samples to the target" : "errors at the end";
}

std::string Answer(const Comparison& comparison, const Findings& findings) {
  const bool scored =
      std::any_of(findings.standings.begin(), findings.standings.end(),
                  [](const Standing& one) { return !one.accuracies.empty() || !one.losses.empty(); });
  const std::string untuned = scored && !comparison.untuned.empty() ? comparison.untuned + " " : "";
  return untuned + Finding(comparison, findings);
}

std::string WhereSynchronousWins(const Findings& findings) {
  if (findings.duels.empty()) return "";
  const bool has_interval = std::any_of(findings.duels.begin(), findings.duels.end(),
                                        [](const Duel& duel) { return duel.ratio.has_interval; });
  if (!has_interval)
    return "One seed cannot show whether synchronous training is significantly better or worse.";
  std::vector<std::string> won;
  for (const Duel& duel : findings.duels) {
    if (!duel.ratio.beyond_noise()) continue;
    const bool synchronous = duel.synchronous_wins();
    won.push_back(absl::StrCat(
        "with ", Plural(duel.workers, "worker"), ", ", synchronous ? duel.synchronous : duel.asynchronous,
        " ", WonInWords(duel.measure), " than ", synchronous ? duel.asynchronous : duel.synchronous));
  }
  if (won.empty()) return "No difference between synchronous and asynchronous training is significant.";
  return absl::StrCat("Significant differences between synchronous and asynchronous training: ",
                      absl::StrJoin(won, "; "), ".");
}

}  // namespace catchment
