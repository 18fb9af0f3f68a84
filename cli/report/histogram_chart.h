// Distributions of whole numbers under each other, on a common axis: one column a number.
#ifndef CATCHMENT_CLI_REPORT_HISTOGRAM_CHART_H_
#define CATCHMENT_CLI_REPORT_HISTOGRAM_CHART_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/report/palette.h"

namespace catchment {

struct Histogram {
  std::string name;
  std::string note;  // right of it
  Look look;
  std::map<uint64_t, double> shares;  // of all, by value
};

struct HistogramChart {
  std::string title;
  std::string x_label;
  uint64_t high = 1;  // what is above is counted into its column
  std::vector<Histogram> histograms;
};

std::string Draw(const HistogramChart& chart);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_HISTOGRAM_CHART_H_
