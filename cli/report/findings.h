// The findings of a comparison: the target, the algorithm that reached it first, and whether the difference
// is statistically significant.
#ifndef CATCHMENT_CLI_REPORT_FINDINGS_H_
#define CATCHMENT_CLI_REPORT_FINDINGS_H_

#include <optional>
#include <string>
#include <vector>

#include "cli/report/comparison.h"
#include "cli/report/statistics.h"

namespace catchment {

// One algorithm with one number of workers, over its seeds.
struct Standing {
  std::string algorithm;
  int workers = 1;
  int runs = 0;        // the number of runs that are done
  BySeed seconds;      // until the target, of the runs that reached it
  BySeed samples;      // likewise
  BySeed accuracies;   // at the end; empty if targets are real numbers
  BySeed losses;       // at the end, of the test set
  BySeed throughputs;  // samples per second
  double learning_rate = 0;
  std::optional<double> momentum;  // empty: the optimizer has none

  bool reached() const { return runs > 0 && static_cast<int>(seconds.size()) == runs; }
};

// The best synchronous algorithm compared with the best other one.
struct Duel {
  enum Measure { kSecondsToTarget, kSamplesToTarget, kFinalErrors };
  Measure measure = kSecondsToTarget;
  int workers = 1;
  std::string synchronous;
  std::string asynchronous;
  Spread synchronous_values;  // seconds, samples or shares of the test set
  Spread asynchronous_values;
  // Synchronous over asynchronous. Below 1 the synchronous one is better: lower is better in all measures.
  Ratio ratio;

  bool synchronous_wins() const { return ratio.beyond_noise() && ratio.value < 1; }
  bool asynchronous_wins() const { return ratio.beyond_noise() && ratio.value > 1; }
};

struct Findings {
  double target = 0;  // test accuracy; 0: there are no scores
  bool target_given = false;
  int workers = 1;  // the largest number, to which the answer refers
  // Ordered by workers; then those that reached the target in all runs, by the mean of the seconds, before
  // the others, by accuracy or, without accuracies, by loss.
  std::vector<Standing> standings;
  std::vector<Duel> duels;
  // The seconds of the second algorithm, and of the best synchronous one, over those of the first, with the
  // most workers. Empty if there is no such algorithm.
  std::optional<Ratio> lead;
  std::optional<Ratio> lead_over_synchronous;

  std::vector<const Standing*> With(int workers) const;
};

// Returns --target, or the highest multiple of 0.5 % that at least half of the algorithms reach in every run
// with the most workers.
double ChooseTarget(const Comparison& comparison);

// Returns all findings.
Findings Find(const Comparison& comparison);

// Returns true if every update of the algorithm waits for all workers.
bool IsSynchronous(const Comparison& comparison, const std::string& algorithm);

// The momentum with which a run trained. With mean staleness tau, asynchrony adds tau / (1 + tau), in the
// model of Mitliagkas et al. 2016 (arXiv:1605.09774): 1 - 1/g with g = 1 + tau workers whose times are
// exponential.
struct Momentum {
  std::optional<double> given;     // empty: the optimizer has none, or a closed loop sets it
  std::optional<double> implicit;  // empty: the model does not apply to the algorithm
};

// `given` is that of the optimizer.
Momentum MomentumOf(const AlgorithmFacts& facts, std::optional<double> given, double staleness_mean);

// Returns one or two sentences: the algorithm that reached the target first, the ratio to the next one with
// its spread over seeds, and whether the difference is statistically significant. A sentence before them says
// which learning rates were not searched for, if they matter.
std::string Answer(const Comparison& comparison, const Findings& findings);

// Returns sentences that list the measures in which synchronous and asynchronous training win; empty without
// duels.
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

#endif  // CATCHMENT_CLI_REPORT_FINDINGS_H_
