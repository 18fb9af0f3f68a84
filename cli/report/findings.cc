#include "cli/report/findings.h"

#include <algorithm>
#include <cmath>

namespace catchment {
namespace {

constexpr double kTargetStep = 0.005;
// Replaces an error rate of 0, which has no logarithm. It is less than half a sample of any test set.
constexpr double kSmallestError = 1e-7;

Standing StandingOf(const Comparison& comparison, const std::string& algorithm, int workers, double target) {
  Standing standing;
  standing.algorithm = algorithm;
  standing.workers = workers;
  for (const RunResult* run : RunsOf(comparison, algorithm, workers)) {
    ++standing.runs;
    standing.learning_rate = run->learning_rate;
    standing.momentum = run->momentum;
    standing.throughputs[run->seed] = run->samples_per_second;
    if (run->accuracy.has_value()) standing.accuracies[run->seed] = *run->accuracy;
    if (run->loss.has_value()) standing.losses[run->seed] = *run->loss;
    const std::optional<Crossing> crossing = FirstReached(run->scores, target);
    if (target <= 0 || !crossing.has_value()) continue;
    standing.seconds[run->seed] = crossing->seconds;
    standing.samples[run->seed] = crossing->samples;
  }
  return standing;
}

bool Before(const Standing& a, const Standing& b) {
  if (a.reached() != b.reached()) return a.reached();
  if (a.reached()) return SpreadOf(a.seconds).mean < SpreadOf(b.seconds).mean;
  if (a.accuracies.empty() && b.accuracies.empty()) {
    if (a.losses.empty() != b.losses.empty()) return b.losses.empty();
    return SpreadOf(a.losses).mean < SpreadOf(b.losses).mean;
  }
  return SpreadOf(a.accuracies).mean > SpreadOf(b.accuracies).mean;
}

BySeed Errors(const Standing& standing) {
  BySeed errors;
  for (const auto& [seed, accuracy] : standing.accuracies)
    errors[seed] = std::max(1 - accuracy, kSmallestError);
  return errors;
}

// Returns the values of a measure; empty if the algorithm has not reached the target in every run.
BySeed ValuesOf(const Standing& standing, Duel::Measure measure) {
  if (measure == Duel::kFinalErrors) return Errors(standing);
  if (!standing.reached()) return {};
  return measure == Duel::kSecondsToTarget ? standing.seconds : standing.samples;
}

// The best algorithm of a family, and the number that it was chosen from.
struct Champion {
  const Standing* standing = nullptr;
  int candidates = 0;
};

Champion BestOf(const Comparison& comparison, const std::vector<const Standing*>& standings,
                Duel::Measure measure, bool synchronous) {
  Champion best;
  for (const Standing* standing : standings) {
    if (IsSynchronous(comparison, standing->algorithm) != synchronous) continue;
    if (ValuesOf(*standing, measure).empty()) continue;
    if (++best.candidates == 1 ||
        SpreadOf(ValuesOf(*standing, measure)).mean < SpreadOf(ValuesOf(*best.standing, measure)).mean) {
      best.standing = standing;
    }
  }
  return best;
}

std::vector<Duel> Duels(const Comparison& comparison, const Findings& findings) {
  std::vector<Duel> duels;
  for (Duel::Measure measure : {Duel::kSecondsToTarget, Duel::kSamplesToTarget, Duel::kFinalErrors}) {
    for (int workers : comparison.workers) {
      const std::vector<const Standing*> standings = findings.With(workers);
      const Champion synchronous = BestOf(comparison, standings, measure, true);
      const Champion asynchronous = BestOf(comparison, standings, measure, false);
      const int pairs = synchronous.candidates * asynchronous.candidates;
      if (pairs == 0) continue;
      const BySeed ours = ValuesOf(*synchronous.standing, measure);
      const BySeed theirs = ValuesOf(*asynchronous.standing, measure);
      duels.push_back({measure, workers, synchronous.standing->algorithm, asynchronous.standing->algorithm,
                       SpreadOf(ours), SpreadOf(theirs), RatioOf(ours, theirs, pairs)});
    }
  }
  return duels;
}

void FindLead(const Comparison& comparison, Findings* findings) {
  const std::vector<const Standing*> standings = findings->With(findings->workers);
  if (standings.empty() || !standings.front()->reached()) return;
  const BySeed& winner = standings.front()->seconds;
  const auto is_synchronous = [&](const Standing* standing) {
    return IsSynchronous(comparison, standing->algorithm);
  };
  const auto end = std::find_if_not(standings.begin(), standings.end(),
                                    [](const Standing* standing) { return standing->reached(); });
  const int reached = static_cast<int>(end - standings.begin());
  if (reached > 1) findings->lead = RatioOf(standings[1]->seconds, winner, reached * (reached - 1) / 2);
  const auto synchronous = std::find_if(standings.begin(), end, is_synchronous);
  if (synchronous == standings.begin() || synchronous == end) return;
  const int waiting = static_cast<int>(std::count_if(standings.begin(), end, is_synchronous));
  findings->lead_over_synchronous = RatioOf((*synchronous)->seconds, winner, waiting * (reached - waiting));
}

}  // namespace

std::vector<const Standing*> Findings::With(int workers) const {
  std::vector<const Standing*> found;
  for (const Standing& standing : standings) {
    if (standing.workers == workers) found.push_back(&standing);
  }
  return found;
}

bool IsSynchronous(const Comparison& comparison, const std::string& algorithm) {
  for (const AlgorithmFacts& facts : comparison.algorithms) {
    if (facts.name == algorithm) return facts.synchronous;
  }
  return false;
}

double ChooseTarget(const Comparison& comparison) {
  if (std::none_of(comparison.runs.begin(), comparison.runs.end(),
                   [](const RunResult& run) { return run.accuracy.has_value() || !run.scores.empty(); })) {
    return 0;
  }
  if (comparison.wanted_target > 0) return comparison.wanted_target;
  std::vector<double> reached;
  for (const AlgorithmFacts& facts : comparison.algorithms) {
    const std::vector<const RunResult*> runs = RunsOf(comparison, facts.name, comparison.workers.back());
    double worst = runs.empty() ? 0 : 1;
    for (const RunResult* run : runs) worst = std::min(worst, BestAccuracy(*run));
    reached.push_back(worst);
  }
  std::sort(reached.rbegin(), reached.rend());
  const double half = reached[(reached.size() + 1) / 2 - 1];
  return std::floor(half / kTargetStep + 1e-9) * kTargetStep;
}

Findings Find(const Comparison& comparison) {
  Findings findings;
  findings.target = ChooseTarget(comparison);
  findings.target_given = comparison.wanted_target > 0;
  findings.workers = comparison.workers.back();
  for (int workers : comparison.workers) {
    const size_t begin = findings.standings.size();
    for (const AlgorithmFacts& facts : comparison.algorithms) {
      Standing standing = StandingOf(comparison, facts.name, workers, findings.target);
      if (standing.runs > 0) findings.standings.push_back(std::move(standing));
    }
    std::stable_sort(findings.standings.begin() + begin, findings.standings.end(), Before);
  }
  findings.duels = Duels(comparison, findings);
  FindLead(comparison, &findings);
  return findings;
}

Momentum MomentumOf(const AlgorithmFacts& facts, std::optional<double> given, double staleness_mean) {
  Momentum momentum{given, std::nullopt};
  const double added = staleness_mean / (1 + staleness_mean);
  if (facts.implicit) momentum.implicit = added;
  if (facts.closed_loop) momentum.given.reset();
  if (facts.open_loop_minimum.has_value() && given.has_value()) {
    momentum.given = std::clamp(*given - added, *facts.open_loop_minimum, *given);
  }
  return momentum;
}

}  // namespace catchment
