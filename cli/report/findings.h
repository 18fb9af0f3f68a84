// What a comparison shows: the target, who reached it first, and whether the difference is more than noise.
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
  int runs = 0;        // that are done
  BySeed seconds;      // to the target, of the runs that reached it
  BySeed samples;      // likewise
  BySeed accuracies;   // at the end; of real targets there are none
  BySeed losses;       // at the end, of the test set
  BySeed throughputs;  // samples per second

  bool reached() const { return runs > 0 && static_cast<int>(seconds.size()) == runs; }
};

// The best of those that wait for all workers against the best of the others.
struct Duel {
  enum Measure { kSecondsToTarget, kSamplesToTarget, kFinalErrors };
  Measure measure = kSecondsToTarget;
  int workers = 1;
  std::string synchronous;
  std::string asynchronous;
  Spread synchronous_values;  // seconds, samples or shares of the test set
  Spread asynchronous_values;
  Ratio
      ratio;  // synchronous over asynchronous; below 1, synchronous is better: all measures are better small

  bool synchronous_wins() const { return ratio.beyond_noise() && ratio.value < 1; }
  bool asynchronous_wins() const { return ratio.beyond_noise() && ratio.value > 1; }
};

struct Findings {
  double target = 0;  // test accuracy; 0: there are no scores
  bool target_given = false;
  int workers = 1;  // the most: the answer is about them
  // By workers; within them who reached the target in all runs first, by the mean of the seconds, then the
  // others by accuracy, or by loss where there is none.
  std::vector<Standing> standings;
  std::vector<Duel> duels;
  // With the most workers: the runner-up's, and the best synchronous one's, seconds over the winner's. Empty
  // where there is none.
  std::optional<Ratio> lead;
  std::optional<Ratio> lead_over_synchronous;

  std::vector<const Standing*> With(int workers) const;
};

// --target, or the highest multiple of 0.5 % that, with the most workers, at least half of the algorithms
// reach in every run.
double ChooseTarget(const Comparison& comparison);

Findings Find(const Comparison& comparison);

bool IsSynchronous(const Comparison& comparison, const std::string& algorithm);

// The momentum with which a run trained. With mean staleness tau, asynchrony adds tau / (1 + tau), in the
// model of Mitliagkas et al. 2016 (arXiv:1605.09774): 1 - 1/g with g = 1 + tau workers whose times are
// exponential.
struct Momentum {
  std::optional<double> given;     // none: the optimizer has none, or a closed loop moves it
  std::optional<double> implicit;  // none: the model is not of this algorithm
};

Momentum MomentumOf(const AlgorithmFacts& facts, double staleness_mean);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_FINDINGS_H_
