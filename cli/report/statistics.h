// Statistics of a few runs with different seeds.
#ifndef CATCHMENT_CLI_REPORT_STATISTICS_H_
#define CATCHMENT_CLI_REPORT_STATISTICS_H_

#include <cstdint>
#include <map>
#include <vector>

namespace catchment {

struct Spread {
  int n = 0;
  double mean = 0;
  double low = 0;   // the smallest
  double high = 0;  // the largest
};

// A value for each seed.
using BySeed = std::map<uint64_t, double>;

Spread SpreadOf(const std::vector<double>& values);
Spread SpreadOf(const BySeed& values);

// The ratio of `values` to `base`, seed by seed: the geometric mean of the ratios, with its 95 % interval by
// the paired t-test on their logarithms. Runs of one seed begin with the same weights, take the samples in
// the same order, and run one after another on the machine, so an effect of the seed or of the time of day on
// both is not counted as noise.
struct Ratio {
  double value = 1;
  double low = 1;
  double high = 1;
  bool has_interval = false;  // at least two seeds
  int pairs = 1;              // from which the two were chosen by their results

  // Returns true if the interval does not contain 1.
  bool beyond_noise() const { return has_interval && (low > 1 || high < 1); }
};

// Computes the ratio over the seeds that both have; 1 without an interval if there are none. All values are
// above 0. If the two were chosen from `pairs` pairs by the same results, the level of the interval is
// corrected as by Bonferroni: all intervals of these pairs together contain the true ratios in 95 % of
// comparisons.
Ratio RatioOf(const BySeed& values, const BySeed& base, int pairs = 1);

// Student's t distribution, for confidence intervals from few runs: P(T <= t) with `dof` degrees of freedom,
// above 0 and not necessarily whole.
double StudentTCdf(double t, double dof);

// Returns t with P(|T| <= t) = confidence; confidence in (0, 1).
double StudentTQuantile(double confidence, double dof);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_STATISTICS_H_
