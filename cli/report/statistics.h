// What a few runs with different seeds say.
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

// One value for each seed.
using BySeed = std::map<uint64_t, double>;

Spread SpreadOf(const std::vector<double>& values);
Spread SpreadOf(const BySeed& values);

// How many times as large `values` are as `base`, seed by seed: the geometric mean of the ratios, with its 95
// % interval by the paired t-test on their logarithms. Runs of one seed begin with the same weights, take the
// samples in the same order, and follow each other on the machine: what a seed or an hour does to both is not
// taken for noise.
struct Ratio {
  double value = 1;
  double low = 1;
  double high = 1;
  bool told = false;  // there is an interval: two seeds at least

  // The interval leaves 1 out.
  bool beyond_noise() const { return told && (low > 1 || high < 1); }
};

// Of the seeds that both have; 1, and nothing told, without any. All values are above 0.
Ratio RatioOf(const BySeed& values, const BySeed& base);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_STATISTICS_H_
