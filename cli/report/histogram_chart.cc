#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/report/chart.h"
#include "cli/report/markup.h"

namespace catchment {
namespace {

constexpr double kWidth = 960;
constexpr double kLeft = 170;
constexpr double kRight = 690;
constexpr double kTitle = 30;
constexpr double kRow = 62;
constexpr double kBar = 46;  // the height of the row's largest share
constexpr double kBottom = 46;
constexpr int kTicks = 10;
const Stroke kFrame = {"#888888", 1, ""};

// Returns the shares with all values above `high` added to its share.
std::map<uint64_t, double> Cut(const std::map<uint64_t, double>& shares, uint64_t high) {
  std::map<uint64_t, double> cut;
  for (const auto& [value, share] : shares) cut[std::min(value, high)] += share;
  return cut;
}

void DrawRow(const Histogram& histogram, const Axis& x, uint64_t high, double bottom, Svg* svg) {
  const std::map<uint64_t, double> shares = Cut(histogram.shares, high);
  double largest = 0;
  for (const auto& [value, share] : shares) largest = std::max(largest, share);
  const std::string fill = svg->Pattern(histogram.look.color, histogram.look.pattern);
  for (const auto& [value, share] : shares) {
    const double height = kBar * share / largest;
    const double left = x.At(static_cast<double>(value) - 0.4);
    svg->Rectangle(left, bottom - height, x.At(static_cast<double>(value) + 0.4) - left, height, fill,
                   "#555555");
    if (share == largest) {
      svg->Text(x.At(static_cast<double>(value)), bottom - height - 3,
                absl::StrFormat("%.0f %%", 100 * share), Anchor::kMiddle, 10);
    }
  }
  svg->Line(kLeft, bottom, kRight, bottom, kFrame);
  svg->Text(kLeft - 8, bottom - 8, histogram.name, Anchor::kEnd, 11);
  svg->Text(kRight + 8, bottom - 8, histogram.note, Anchor::kStart, 11);
}

}  // namespace

std::string Draw(const HistogramChart& chart) {
  const double bottom = kTitle + kRow * static_cast<double>(chart.histograms.size());
  Svg svg(kWidth, bottom + kBottom, chart.title);
  svg.Text(16, 16, chart.title, Anchor::kStart, 13, "#000000");
  const Axis x(-0.6, static_cast<double>(chart.high) + 0.6, kLeft, kRight);
  double y = kTitle;
  for (const Histogram& histogram : chart.histograms) DrawRow(histogram, x, chart.high, y += kRow, &svg);
  const int wanted = std::min<int>(kTicks, static_cast<int>(chart.high) + 1);
  for (double tick : x.Ticks(wanted)) {
    if (tick != static_cast<uint64_t>(tick)) continue;
    const bool above = tick == static_cast<double>(chart.high);
    svg.Text(x.At(tick), bottom + 16, absl::StrCat(x.Label(tick, wanted, Unit::kNumber), above ? "+" : ""),
             Anchor::kMiddle, 11);
  }
  svg.Text((kLeft + kRight) / 2, bottom + 36, chart.x_label, Anchor::kMiddle);
  return svg.Finish();
}

}  // namespace catchment
