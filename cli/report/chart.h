// The kinds of charts in a report, drawn as SVG, with their axes and colours.
#ifndef CATCHMENT_CLI_REPORT_CHART_H_
#define CATCHMENT_CLI_REPORT_CHART_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/report/statistics.h"

namespace catchment {

enum class Unit { kNumber, kPercent };

// An axis: the positions of values, and the round numbers along it.
class Axis {
 public:
  // Maps the values low..high, low < high, to the pixels from..to. If `logarithmic`, equal ratios have equal
  // distances, values are above 0, and there are no round numbers.
  Axis(double low, double high, double from, double to, bool logarithmic = false)
      : low_(low), high_(high), from_(from), to_(to), logarithmic_(logarithmic) {}

  double At(double value) const;
  double low() const { return low_; }
  double high() const { return high_; }

  // Returns multiples of 1, 2 or 5 times a power of ten, about `wanted` of them.
  std::vector<double> Ticks(int wanted) const;
  // Returns a tick's label, with the digits that all ticks need: "0.5", "120,000", "97.5 %", "1.2M".
  std::string Label(double tick, int wanted, Unit unit) const;

 private:
  double Step(int wanted) const;

  double low_;
  double high_;
  double from_;
  double to_;
  bool logarithmic_;
};

// Returns the next tick of an axis 0..value of about `wanted` ticks, so that the highest value has a line
// above it.
double RoundUp(double value, int wanted);

// The appearance of the n-th series of a chart: colours, and without colour dashes, markers or stripes,
// distinguish them.
//
// Source of the colours: Okabe and Ito 2008, "Color Universal Design"; without yellow, which is too light on
// paper.
struct Look {
  std::string color;
  std::string dashes;
  int marker = 0;   // Svg::Marker
  int pattern = 0;  // Svg::Pattern
};

inline Look LookOf(int index) {
  constexpr std::array<const char*, 7> kColors = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                  "#E69F00", "#56B4E9", "#000000"};
  constexpr std::array<const char*, 5> kDashes = {"", "7 3", "2 2.5", "8 3 2 3", "12 4"};
  return {kColors[index % kColors.size()], kDashes[index % kDashes.size()], index % 4, index % 4};
}

struct CurvePoint {
  double x = 0;
  double y = 0;
  double low = 0;
  double high = 0;
};

struct Curve {
  std::string name;  // empty: the legend leaves it out
  Look look;
  std::vector<CurvePoint> points;
  bool markers = false;  // draws a marker at each point
};

// Curves over a common axis, each with a band of the range over the seeds.
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
  bool x_logarithmic = false;   // needs x_ticks, and x_low above 0
  std::vector<Curve> curves;
  // A dashed horizontal line, and its name.
  std::optional<double> level;
  std::string level_name;
};

std::string Draw(const LineChart& chart);

struct ChartRow {
  std::string group;  // the heading above the first row of each group
  std::string name;
  std::string note;  // drawn at the right
  // Either spread or parts is set.
  Spread spread;              // n 0: only the note is drawn
  Look look;                  // the marker of the mean
  std::vector<double> parts;  // the parts of a bar, from the left, each at least 0
};

// One row for each algorithm and number of workers: a mean with its range, or a bar of several parts.
struct RowChart {
  std::string title;
  std::string x_label;
  Unit unit = Unit::kNumber;
  double high = 1;                      // the axis goes from 0 to this
  std::vector<std::string> part_names;  // for the legend of bars
  std::vector<ChartRow> rows;
};

std::string Draw(const RowChart& chart);

struct Histogram {
  std::string name;
  std::string note;  // drawn at the right
  Look look;
  std::map<uint64_t, double> shares;  // the share of each value
};

// Distributions of whole numbers below each other on a common axis, with one column for each number.
struct HistogramChart {
  std::string title;
  std::string x_label;
  uint64_t high = 1;  // the last column, which includes all higher values
  std::vector<Histogram> histograms;
};

std::string Draw(const HistogramChart& chart);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_CHART_H_
