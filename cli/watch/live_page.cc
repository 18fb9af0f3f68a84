#include "cli/watch/live_page.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/live/progress.h"
#include "cli/live/status_text.h"
#include "cli/report/chart.h"
#include "cli/report/markup.h"
#include "common/base/text.h"
#include "common/measures/measures.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kTicks = 5;

void AddPoint(double seconds, double value, RunHistory::Series* series) {
  if (!std::isfinite(value)) return;
  while (!series->empty() && series->back().seconds >= seconds) series->pop_back();
  series->push_back({seconds, value});
  if (series->size() <= RunHistory::kMaxPoints) return;
  size_t kept = 0;
  for (size_t i = 0; i < series->size(); i += 2) (*series)[kept++] = (*series)[i];
  series->resize(kept);
}

// Adds a score, which reports repeat until there is a new one.
void AddScore(double seconds, double value, RunHistory::Series* series) {
  if (!series->empty() && series->back().seconds == seconds) return;
  AddPoint(seconds, value, series);
}

Curve CurveOf(const std::string& name, int look, bool markers, const RunHistory::Series& series) {
  Curve curve{.name = name, .look = LookOf(look), .points = {}, .markers = markers};
  for (const RunHistory::Point& point : series)
    curve.points.push_back({point.seconds, point.value, point.value, point.value});
  return curve;
}

std::string Chart(const std::string& title, const std::string& y_label, Unit unit, double end,
                  std::vector<Curve> curves) {
  LineChart chart{.title = title, .x_label = "training time (s)", .y_label = y_label, .y_unit = unit};
  double low = unit == Unit::kPercent ? 1 : 0, high = 0;
  for (Curve& curve : curves) {
    for (const CurvePoint& point : curve.points) {
      low = std::min(low, point.y);
      high = std::max(high, point.y);
    }
    if (!curve.points.empty()) chart.curves.push_back(std::move(curve));
  }
  if (chart.curves.empty()) return "";
  chart.x_high = RoundUp(end, kTicks);
  // Accuracies are shown from the lowest multiple of 10 % on.
  chart.y_low = unit == Unit::kPercent ? std::floor(10 * low) / 10 : 0;
  chart.y_high = unit == Unit::kPercent ? 1 : RoundUp(high, kTicks);
  if (chart.y_low >= chart.y_high) chart.y_low = 0;
  return Draw(chart);
}

std::string ProgressBar(const Json& facts) {
  if (facts["percent"].is_null()) return "";
  const double share = facts["percent"].get<double>() / 100;
  return absl::StrFormat("<progress max=\"1\" value=\"%.4f\" style=\"width: 100%%\">%s</progress>\n",
                         std::min(share, 1.0), Percent(share));
}

constexpr char kScript[] = R"(<script>
async function update() {
  const note = document.getElementById("note");
  try {
    const answer = await fetch("$content", {cache: "no-store"});
    if (!answer.ok) throw new Error();
    document.getElementById("content").innerHTML = await answer.text();
    note.textContent = "";
    if (document.getElementById("ended") && "$end") { location.replace("$end"); return; }
  } catch (error) {
    note.textContent = "`catchment watch` does not answer: restart it to see more.";
  }
  setTimeout(update, 1000);
}
update();
</script>
)";

}  // namespace

void RunHistory::AddMetrics(const std::string& lines) {
  for (const absl::string_view line : absl::StrSplit(lines, '\n')) {
    const Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (row.is_object()) AddLine(row, /*trains=*/true);
  }
}

void RunHistory::Add(const v1::JobStatus& status) {
  Json row;
  AddMeasures(JobMeasures(), kInLines, JobReading(status), &row);
  AddLine(row, status.phase() == v1::JobStatus::TRAINING);
}

void RunHistory::AddLine(const Json& row, bool trains) {
  const auto add = [&row](const char* seconds, const char* key, auto add_to, Series* series) {
    const auto at = row.find(seconds), value = row.find(key);
    if (at != row.end() && value != row.end() && at->is_number() && value->is_number())
      add_to(at->template get<double>(), value->template get<double>(), series);
  };
  if (trains) {
    add("wall_seconds", "train_loss", AddPoint, &train_loss_);
    add("wall_seconds", "train_accuracy", AddPoint, &train_accuracy_);
    add("wall_seconds", "staleness_mean", AddPoint, &staleness_);
    if (row.value("samples_per_second", 0.0) > 0) add("wall_seconds", "samples_per_second", AddPoint, &rate_);
  }
  add("tested_at_seconds", "test_loss", AddScore, &test_loss_);
  add("tested_at_seconds", "test_accuracy", AddScore, &test_accuracy_);
}

std::string LiveContent(const v1::JobStatus& status, const v1::JobStatus* before, const RunHistory& history) {
  Json facts;
  AddMeasures(JobMeasures(), kInStatus, JobReading(status), &facts);
  double end = facts["wall_seconds"];
  for (const RunHistory::Series* series : {&history.rate(), &history.test_loss()}) {
    if (!series->empty()) end = std::max(end, series->back().seconds);
  }
  const std::vector<std::string> charts = {
      Chart("Accuracy", "", Unit::kPercent, end,
            {CurveOf("test set", 0, true, history.test_accuracy()),
             CurveOf("training, last seconds", 1, false, history.train_accuracy())}),
      Chart("Loss", "", Unit::kNumber, end,
            {CurveOf("test set", 0, true, history.test_loss()),
             CurveOf("training, last seconds", 1, false, history.train_loss())}),
      Chart("Samples a second", "", Unit::kNumber, end, {CurveOf("all workers", 2, false, history.rate())}),
      Chart("Staleness of pushes", "updates, mean", Unit::kNumber, end,
            {CurveOf("since the start", 3, false, history.staleness())})};
  return absl::StrCat("<h1>", EscapeXml(status.job()), "</h1>\n", HtmlParagraph(ProgressLine(status)),
                      ProgressBar(facts), HtmlFigure(charts, ""),
                      "<pre style=\"columns: auto; overflow-x: auto\">",
                      EscapeXml(StatusText(status, before)), "</pre>\n");
}

std::string LivePage(const std::string& title, const std::string& content_url, const std::string& end_url) {
  const std::string script = absl::StrReplaceAll(kScript, {{"$content", content_url}, {"$end", end_url}});
  return HtmlPage(title,
                  absl::StrCat("<div id=\"content\"></div>\n<p id=\"note\" role=\"status\"></p>\n", script));
}

}  // namespace catchment
