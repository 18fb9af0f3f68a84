#include "absl/strings/str_cat.h"
#include "cli/report/chart.h"
#include "cli/report/markup.h"
#include "common/text.h"

namespace catchment {
namespace {

constexpr double kWidth = 470;
constexpr double kPlotHeight = 220;
constexpr double kLeft = 64;
constexpr double kRight = 456;
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

std::vector<LegendPlace> LegendPlaces(const LineChart& chart) {
  std::vector<LegendPlace> places;
  LegendPlace next{kLeft, 0};
  for (const Curve& curve : chart.curves) {
    if (curve.name.empty()) {
      places.push_back(next);
      continue;
    }
    const double width = kLegendSample + kLegendLetter * static_cast<double>(curve.name.size());
    if (next.x + width > kWidth && next.x > kLeft) next = {kLeft, next.row + 1};
    places.push_back(next);
    next.x += width + kLegendGap;
  }
  return places;
}

void DrawLegend(const LineChart& chart, Svg* svg) {
  const std::vector<LegendPlace> places = LegendPlaces(chart);
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

void DrawAxes(const LineChart& chart, const Axis& x, const Axis& y, double top, Svg* svg) {
  const double bottom = top + kPlotHeight;
  for (double tick : y.Ticks(kTicks)) {
    svg->Line(kLeft, y.At(tick), kRight, y.At(tick), kGrid);
    svg->Text(kLeft - 6, y.At(tick) + 4, y.Label(tick, kTicks, chart.y_unit), Anchor::kEnd, 11);
  }
  for (double tick : chart.x_ticks.empty() ? x.Ticks(kTicks) : chart.x_ticks) {
    svg->Line(x.At(tick), bottom, x.At(tick), bottom + 4, kFrame);
    const std::string label = chart.x_ticks.empty() ? x.Label(tick, kTicks, Unit::kNumber) : Short(tick);
    svg->Text(x.At(tick), bottom + 17, label, Anchor::kMiddle, 11);
  }
  svg->Line(kLeft, bottom, kRight, bottom, kFrame);
  svg->Line(kLeft, top, kLeft, bottom, kFrame);
  svg->Text((kLeft + kRight) / 2, bottom + 36, chart.x_label, Anchor::kMiddle);
  svg->VerticalText(14, top + kPlotHeight / 2, chart.y_label);
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
  const double top = kTitle + kLegendRow * (LegendPlaces(chart).back().row + 1) + 8;
  Svg svg(kWidth, top + kPlotHeight + kBottom, chart.title);
  const Axis x(chart.x_low, chart.x_high, kLeft, kRight);
  const Axis y(chart.y_low, chart.y_high, top + kPlotHeight, top);
  svg.Text(kLeft, 16, chart.title, Anchor::kStart, 13, "#000000");
  DrawLegend(chart, &svg);
  DrawAxes(chart, x, y, top, &svg);
  if (chart.level.has_value()) {
    svg.Line(kLeft, y.At(*chart.level), kRight, y.At(*chart.level), kLevel);
    svg.Text(kLeft + 5, y.At(*chart.level) - 4, chart.level_name, Anchor::kStart, 11, "#555555");
  }
  svg.BeginClip(kLeft, top - 4, kRight - kLeft + 4, kPlotHeight + 8);
  for (const Curve& curve : chart.curves) DrawCurve(curve, x, y, &svg);
  svg.EndClip();
  return svg.Finish();
}

}  // namespace catchment
