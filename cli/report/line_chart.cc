#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/report/chart.h"
#include "cli/report/markup.h"
#include "common/base/text.h"

namespace catchment {
namespace {

constexpr double kWidth = 480;
constexpr double kPlotHeight = 220;
constexpr double kLeft = 64;  // of the plot, unless the labels of the y axis are wider
constexpr double kRight = 456;
constexpr double kLabelY = 14;  // the baseline of the y axis's name, which is written upwards
constexpr double kLabelGap = 6;
constexpr double kTickSize = 11;
constexpr double kTitle = 26;
constexpr double kLegendRow = 18;
constexpr double kLegendSample = 31;
constexpr double kLegendLetter = 6;
constexpr double kLegendGap = 12;
constexpr double kBottom = 44;
constexpr int kTicks = 5;
const Stroke kGrid = {"#dddddd", 1, ""};
const Stroke kFrame = {"#888888", 1, ""};
const Stroke kLevel = {"#555555", 1, "4 3"};

// The position of an entry of the legend, whose lines are as long as the plot is wide.
struct LegendPlace {
  double x = 0;
  int row = 0;
};

// Returns the left end of the plot, with enough space for the labels of the y axis between it and the axis's
// name.
double LeftOf(const LineChart& chart, const Axis& y) {
  double widest = 0;
  for (double tick : y.Ticks(kTicks))
    widest = std::max(widest, TextWidth(y.Label(tick, kTicks, chart.y_unit), kTickSize));
  return std::max(kLeft, kLabelY + 2 * kLabelGap + widest);
}

std::vector<LegendPlace> LegendPlaces(const LineChart& chart, double left) {
  std::vector<LegendPlace> places;
  LegendPlace next{left, 0};
  for (const Curve& curve : chart.curves) {
    if (curve.name.empty()) {
      places.push_back(next);
      continue;
    }
    const double width = kLegendSample + kLegendLetter * static_cast<double>(curve.name.size());
    if (next.x + width > kWidth && next.x > left) next = {left, next.row + 1};
    places.push_back(next);
    next.x += width + kLegendGap;
  }
  return places;
}

void DrawLegend(const LineChart& chart, const std::vector<LegendPlace>& places, Svg* svg) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (chart.curves[i].name.empty()) continue;
    const Look& look = chart.curves[i].look;
    const double x = places[i].x;
    const double y = kTitle + kLegendRow * (0.5 + places[i].row);
    svg->Line(x, y, x + 26, y, {look.color, 2, look.dashes});
    if (chart.curves[i].markers) svg->Marker(x + 13, y, look.marker, look.color);
    svg->Text(x + kLegendSample, y + 4, chart.curves[i].name, Anchor::kStart, 11);
  }
}

void DrawAxes(const LineChart& chart, const Axis& x, const Axis& y, double top, double left, Svg* svg) {
  const double bottom = top + kPlotHeight;
  for (double tick : y.Ticks(kTicks)) {
    svg->Line(left, y.At(tick), kRight, y.At(tick), kGrid);
    svg->Text(left - kLabelGap, y.At(tick) + 4, y.Label(tick, kTicks, chart.y_unit), Anchor::kEnd, kTickSize);
  }
  for (double tick : chart.x_ticks.empty() ? x.Ticks(kTicks) : chart.x_ticks) {
    svg->Line(x.At(tick), bottom, x.At(tick), bottom + 4, kFrame);
    const std::string label = chart.x_ticks.empty() ? x.Label(tick, kTicks, Unit::kNumber) : Short(tick);
    // The label of the last tick would leave the picture if it were centred.
    const double middle = std::min(x.At(tick), kWidth - TextWidth(label, kTickSize) / 2);
    svg->Text(middle, bottom + 17, label, Anchor::kMiddle, kTickSize);
  }
  svg->Line(left, bottom, kRight, bottom, kFrame);
  svg->Line(left, top, left, bottom, kFrame);
  svg->Text((left + kRight) / 2, bottom + 36, chart.x_label, Anchor::kMiddle);
  svg->VerticalText(kLabelY, top + kPlotHeight / 2, chart.y_label);
}

void DrawCurve(const Curve& curve, const Axis& x, const Axis& y, Svg* svg) {
  PixelPath line;
  PixelPath band;
  for (const CurvePoint& point : curve.points) {
    line.emplace_back(x.At(point.x), y.At(point.y));
    band.emplace_back(x.At(point.x), y.At(point.high));
  }
  for (auto point = curve.points.rbegin(); point != curve.points.rend(); ++point) {
    band.emplace_back(x.At(point->x), y.At(point->low));
  }
  svg->Area(band, curve.look.color, 0.18);
  svg->Path(line, {curve.look.color, 2, curve.look.dashes});
  if (!curve.markers) return;
  for (const auto& [px, py] : line) svg->Marker(px, py, curve.look.marker, curve.look.color);
}

}  // namespace

std::string Draw(const LineChart& chart) {
  const double left = LeftOf(chart, Axis(chart.y_low, chart.y_high, 0, 1));
  const std::vector<LegendPlace> legend = LegendPlaces(chart, left);
  const double top = kTitle + kLegendRow * (legend.back().row + 1) + 8;
  Svg svg(kWidth, top + kPlotHeight + kBottom, chart.title);
  const Axis x(chart.x_low, chart.x_high, left, kRight, chart.x_logarithmic);
  const Axis y(chart.y_low, chart.y_high, top + kPlotHeight, top);
  svg.Text(left, 16, chart.title, Anchor::kStart, 13, "#000000");
  DrawLegend(chart, legend, &svg);
  DrawAxes(chart, x, y, top, left, &svg);
  if (chart.level.has_value()) {
    svg.Line(left, y.At(*chart.level), kRight, y.At(*chart.level), kLevel);
    svg.Text(left + 5, y.At(*chart.level) - 4, chart.level_name, Anchor::kStart, 11, "#555555");
  }
  svg.BeginClip(left, top - 4, kRight - left + 4, kPlotHeight + 8);
  for (const Curve& curve : chart.curves) DrawCurve(curve, x, y, &svg);
  svg.EndClip();
  return svg.Finish();
}

}  // namespace catchment
