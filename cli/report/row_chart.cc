#include "cli/report/chart.h"
#include "cli/report/markup.h"

namespace catchment {
namespace {

constexpr double kWidth = 960;
constexpr double kLeft = 170;
constexpr double kRight = 690;
constexpr double kTitle = 26;
constexpr double kLegend = 22;
constexpr double kRow = 19;
constexpr double kHeading = 22;
constexpr double kBottom = 46;
constexpr double kPartColumn = 190;
constexpr int kTicks = 6;
const Stroke kGrid = {"#dddddd", 1, ""};
const Stroke kFrame = {"#888888", 1, ""};

bool BeginsGroup(const RowChart& chart, size_t row) {
  return !chart.rows[row].group.empty() && (row == 0 || chart.rows[row].group != chart.rows[row - 1].group);
}

double RowsHeight(const RowChart& chart) {
  double height = 0;
  for (size_t i = 0; i < chart.rows.size(); ++i) height += kRow + (BeginsGroup(chart, i) ? kHeading : 0);
  return height;
}

void DrawLegend(const RowChart& chart, const std::vector<std::string>& fills, Svg* svg) {
  for (size_t i = 0; i < chart.part_names.size(); ++i) {
    const double x = kLeft + kPartColumn * static_cast<double>(i);
    svg->Rectangle(x, kTitle + 2, 14, 12, fills[i], "#555555");
    svg->Text(x + 19, kTitle + 12, chart.part_names[i], Anchor::kStart, 11);
  }
}

void DrawAxis(const RowChart& chart, const Axis& x, double top, double bottom, Svg* svg) {
  for (double tick : x.Ticks(kTicks)) {
    svg->Line(x.At(tick), top, x.At(tick), bottom, kGrid);
    svg->Text(x.At(tick), bottom + 16, x.Label(tick, kTicks, chart.unit), Anchor::kMiddle, 11);
  }
  svg->Line(kLeft, bottom, kRight, bottom, kFrame);
  svg->Line(kLeft, top, kLeft, bottom, kFrame);
  svg->Text((kLeft + kRight) / 2, bottom + 36, chart.x_label, Anchor::kMiddle);
}

void DrawSpread(const ChartRow& row, const Axis& x, double y, Svg* svg) {
  if (row.spread.n == 0) return;
  const Stroke whisker = {row.look.color, 2, ""};
  svg->Line(x.At(row.spread.low), y, x.At(row.spread.high), y, whisker);
  for (double end : {row.spread.low, row.spread.high}) svg->Line(x.At(end), y - 4, x.At(end), y + 4, whisker);
  svg->Marker(x.At(row.spread.mean), y, row.look.marker, row.look.color);
}

void DrawParts(const ChartRow& row, const std::vector<std::string>& fills, const Axis& x, double y,
               Svg* svg) {
  double sum = 0;
  for (size_t i = 0; i < row.parts.size(); ++i) {
    const double begin = x.At(sum);
    sum += row.parts[i];
    if (row.parts[i] > 0) svg->Rectangle(begin, y - 6, x.At(sum) - begin, 12, fills[i], "#555555");
  }
}

}  // namespace

std::string Draw(const RowChart& chart) {
  const double top = kTitle + (chart.part_names.empty() ? 0 : kLegend);
  const double bottom = top + RowsHeight(chart) + 4;
  Svg svg(kWidth, bottom + kBottom, chart.title);
  svg.Text(16, 16, chart.title, Anchor::kStart, 13, "#000000");
  std::vector<std::string> fills;
  for (size_t i = 0; i < chart.part_names.size(); ++i) {
    const Look look = LookOf(static_cast<int>(i));
    fills.push_back(svg.Pattern(look.color, look.pattern));
  }
  DrawLegend(chart, fills, &svg);
  const Axis x(0, chart.high, kLeft, kRight);
  DrawAxis(chart, x, top, bottom, &svg);
  double y = top;
  for (size_t i = 0; i < chart.rows.size(); ++i) {
    const ChartRow& row = chart.rows[i];
    if (BeginsGroup(chart, i)) {
      svg.Text(16, y + 16, row.group, Anchor::kStart, 12, "#000000");
      y += kHeading;
    }
    const double middle = y + kRow / 2;
    svg.Text(kLeft - 8, middle + 4, row.name, Anchor::kEnd, 11);
    DrawSpread(row, x, middle, &svg);
    DrawParts(row, fills, x, middle, &svg);
    svg.Text(kRight + 8, middle + 4, row.note, Anchor::kStart, 11);
    y += kRow;
  }
  return svg.Finish();
}

}  // namespace catchment
