// Curves over a common axis, each with a band of what the seeds spread over.
#ifndef CATCHMENT_CLI_REPORT_LINE_CHART_H_
#define CATCHMENT_CLI_REPORT_LINE_CHART_H_

#include <optional>
#include <string>
#include <vector>

#include "cli/report/axis.h"
#include "cli/report/palette.h"

namespace catchment {

struct CurvePoint {
  double x = 0;
  double y = 0;
  double low = 0;
  double high = 0;
};

struct Curve {
  std::string name;
  Look look;
  std::vector<CurvePoint> points;
  bool markers = false;  // at its points
};

struct LineChart {
  std::string title;
  std::string x_label;  // with its unit
  std::string y_label;
  Unit y_unit = Unit::kNumber;
  double x_low = 0;
  double x_high = 1;
  double y_low = 0;
  double y_high = 1;
  std::vector<double> x_ticks;  // empty: round numbers
  std::vector<Curve> curves;
  // A dashed line across, and what it is called.
  std::optional<double> level;
  std::string level_name;
};

std::string Draw(const LineChart& chart);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_LINE_CHART_H_
