#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/report/chart.h"
#include "cli/report/findings.h"
#include "cli/report/report.h"
#include "common/base/text.h"

namespace catchment {
namespace {

constexpr int kTicks = 5;
constexpr uint64_t kMaxColumns = 60;

double BestOfAll(const Comparison& comparison) {
  double best = 0;
  for (const RunResult& run : comparison.runs) best = std::max(best, BestAccuracy(run));
  return best;
}

std::string Group(int workers) { return Plural(workers, "worker"); }

std::string AccuracyChart(const Comparison& comparison, const Findings& findings, int workers,
                          double TestScore::*x, const std::string& over, const std::string& x_label) {
  LineChart chart;
  chart.title = absl::StrCat("Test accuracy over ", over, ", ", Plural(workers, "worker"));
  chart.x_label = x_label;
  chart.y_label = "test accuracy";
  chart.y_unit = Unit::kPercent;
  chart.y_low = LowestShown(comparison, findings);
  chart.y_high = std::min(1.0, BestOfAll(comparison) + 0.05 * (BestOfAll(comparison) - chart.y_low));
  chart.x_high = 0;
  for (size_t i = 0; i < comparison.algorithms.size(); ++i) {
    const std::string& name = comparison.algorithms[i].name;
    const std::vector<CurvePoint> points = AccuracyOver(x, RunsOf(comparison, name, workers));
    if (points.empty()) continue;
    chart.x_high = std::max(chart.x_high, points.back().x);
    chart.curves.push_back({name, LookOf(static_cast<int>(i)), points, false});
  }
  if (chart.curves.empty() || chart.x_high <= 0) return "";
  chart.level = findings.target;
  chart.level_name = "target";
  return Draw(chart);
}

// Returns a curve of `values` for each algorithm over the number of workers, divided by the mean with one
// worker if `base` is true. Skips numbers of workers with which a run has no value.
std::vector<Curve> CurvesOf(BySeed Standing::*values, const Comparison& comparison, const Findings& findings,
                            bool base = false) {
  std::vector<Curve> curves;
  for (size_t i = 0; i < comparison.algorithms.size(); ++i) {
    Curve curve{comparison.algorithms[i].name, LookOf(static_cast<int>(i)), {}, true};
    double one = base ? 0 : 1;
    for (const Standing& standing : findings.standings) {
      if (standing.algorithm != curve.name) continue;
      const Spread spread = SpreadOf(standing.*values);
      if (base && standing.workers == 1) one = spread.mean;
      if (spread.n == 0 || spread.n < standing.runs || one <= 0) continue;
      curve.points.push_back(
          {1.0 * standing.workers, spread.mean / one, spread.low / one, spread.high / one});
    }
    if (!curve.points.empty()) curves.push_back(curve);
  }
  return curves;
}

double HighestOf(const std::vector<Curve>& curves) {
  double high = 0;
  for (const Curve& curve : curves) {
    for (const CurvePoint& point : curve.points) high = std::max(high, point.high);
  }
  return high;
}

LineChart OverWorkers(const Comparison& comparison, std::vector<Curve> curves) {
  LineChart chart;
  chart.x_label = "workers";
  chart.x_low = 0;
  chart.x_high = comparison.workers.back() * 1.05;
  chart.x_ticks.assign(comparison.workers.begin(), comparison.workers.end());
  chart.curves = std::move(curves);
  chart.y_high = RoundUp(HighestOf(chart.curves), kTicks);
  return chart;
}

// As OverWorkers, with a logarithmic axis. Returns nothing if the runs have one number of workers.
std::optional<LineChart> OverManyWorkers(const Comparison& comparison, std::vector<Curve> curves) {
  if (curves.empty() || comparison.workers.size() < 2) return std::nullopt;
  LineChart chart = OverWorkers(comparison, std::move(curves));
  chart.x_logarithmic = true;
  chart.x_low = comparison.workers.front() / 1.05;
  return chart;
}

// Returns rows for all algorithms and numbers of workers. `fill` sets the values of a row from its runs, of
// which there is at least one.
template <typename Fill>
std::vector<ChartRow> Rows(const Comparison& comparison, Fill fill) {
  std::vector<ChartRow> rows;
  for (int workers : comparison.workers) {
    for (size_t i = 0; i < comparison.algorithms.size(); ++i) {
      const std::vector<const RunResult*> runs = RunsOf(comparison, comparison.algorithms[i].name, workers);
      if (runs.empty()) continue;
      ChartRow row{Group(workers), comparison.algorithms[i].name, "", {}, LookOf(static_cast<int>(i)), {}};
      fill(comparison.algorithms[i], runs, &row);
      rows.push_back(row);
    }
  }
  return rows;
}

double MeanOf(const std::vector<const RunResult*>& runs, double RunResult::*field) {
  double sum = 0;
  for (const RunResult* run : runs) sum += run->*field;
  return sum / static_cast<double>(runs.size());
}

Histogram StalenessOf(const AlgorithmFacts& facts, const std::vector<const RunResult*>& runs,
                      const Look& look) {
  Histogram histogram{facts.name, "", look, {}};
  double all = 0;
  double sum = 0;
  for (const RunResult* run : runs) {
    for (const auto& [value, count] : run->staleness) {
      histogram.shares[value] += static_cast<double>(count);
      all += static_cast<double>(count);
      sum += static_cast<double>(value * count);
    }
  }
  if (all == 0) return histogram;
  for (auto& [value, share] : histogram.shares) share /= all;
  histogram.note = absl::StrFormat("mean %.2f, 99 of 100 at most %s", sum / all,
                                   Short(std::round(MeanOf(runs, &RunResult::staleness_p99))));
  return histogram;
}

// Points of a curve of accuracy.
constexpr int kPoints = 60;

// Returns the accuracy at `at`, which is not before the first score. `scores` are ascending in x; after the
// last one the accuracy is constant.
double Interpolate(const std::vector<TestScore>& scores, double TestScore::*x, double at) {
  const auto after =
      std::find_if(scores.begin(), scores.end(), [&](const TestScore& s) { return s.*x >= at; });
  if (after == scores.begin()) return after->accuracy;
  if (after == scores.end()) return scores.back().accuracy;
  const TestScore& before = *(after - 1);
  const double share = (at - before.*x) / ((*after).*x - before.*x);
  return before.accuracy + share * (after->accuracy - before.accuracy);
}

}  // namespace

std::vector<CurvePoint> AccuracyOver(double TestScore::*x, const std::vector<const RunResult*>& runs) {
  double begin = 0;
  double end = 0;
  for (const RunResult* run : runs) {
    if (run->scores.empty()) return {};
    begin = std::max(begin, run->scores.front().*x);
    end = std::max(end, run->scores.back().*x);
  }
  if (runs.empty()) return {};
  std::vector<CurvePoint> curve;
  for (int i = 0; i <= kPoints; ++i) {
    const double at = begin + (end - begin) * i / kPoints;
    std::vector<double> accuracies;
    for (const RunResult* run : runs) accuracies.push_back(Interpolate(run->scores, x, at));
    const Spread spread = SpreadOf(accuracies);
    curve.push_back({at, spread.mean, spread.low, spread.high});
  }
  return curve;
}

// Leaves enough space below the target to show how each algorithm reaches it, and cuts off low accuracies.
double LowestShown(const Comparison& comparison, const Findings& findings) {
  const double best = BestOfAll(comparison);
  double lowest = best;
  for (const RunResult& run : comparison.runs) {
    for (const TestScore& score : run.scores) lowest = std::min(lowest, score.accuracy);
  }
  const double below = best - std::max(0.08, 5 * (best - findings.target));
  return std::max(0.0, std::max(lowest - 0.005, below));
}

std::string AccuracyOverTime(const Comparison& comparison, const Findings& findings, int workers) {
  return AccuracyChart(comparison, findings, workers, &TestScore::seconds, "time", "seconds of training");
}

std::string AccuracyOverSamples(const Comparison& comparison, const Findings& findings, int workers) {
  return AccuracyChart(comparison, findings, workers, &TestScore::samples, "samples",
                       "samples trained, all workers together");
}

std::string AccuracyAtTheEnd(const Comparison& comparison, const Findings& findings) {
  std::optional<LineChart> chart =
      OverManyWorkers(comparison, CurvesOf(&Standing::accuracies, comparison, findings));
  if (!chart.has_value()) return "";
  chart->title = "Test accuracy at the end";
  chart->y_label = "test accuracy";
  chart->y_unit = Unit::kPercent;
  const double best = HighestOf(chart->curves);
  double lowest = best - 0.01;
  for (const Curve& curve : chart->curves) {
    for (const CurvePoint& point : curve.points) lowest = std::min(lowest, point.low);
  }
  const std::vector<double> ticks = Axis(lowest, best, 0, 1).Ticks(kTicks);
  const double step = ticks[1] - ticks[0];
  chart->y_low = std::max(0.0, step * std::floor(lowest / step + 1e-9));
  chart->y_high = step * std::ceil(best / step - 1e-9);
  return Draw(*chart);
}

std::string TimeToTargetOverWorkers(const Comparison& comparison, const Findings& findings) {
  std::optional<LineChart> chart =
      OverManyWorkers(comparison, CurvesOf(&Standing::seconds, comparison, findings));
  if (!chart.has_value()) return "";
  chart->title = absl::StrFormat("Time to %.1f %% test accuracy over workers", 100 * findings.target);
  chart->y_label = "seconds of training";
  return Draw(*chart);
}

std::string TimeToTarget(const Comparison& comparison, const Findings& findings) {
  if (findings.target <= 0) return "";
  RowChart chart;
  chart.title = absl::StrFormat("Time to %.1f %% test accuracy", 100 * findings.target);
  chart.x_label = "seconds of training; mean, and from the fastest to the slowest seed";
  chart.high = 0;
  chart.rows =
      Rows(comparison, [&](const AlgorithmFacts&, const std::vector<const RunResult*>& runs, ChartRow* row) {
        BySeed seconds;
        for (const RunResult* run : runs) {
          if (const auto crossing = FirstReached(run->scores, findings.target))
            seconds[run->seed] = crossing->seconds;
        }
        row->spread = SpreadOf(seconds);
        row->note = seconds.empty() ? "not reached" : SecondsWithSpread(row->spread);
        if (!seconds.empty() && seconds.size() < runs.size()) {
          absl::StrAppend(&row->note, ", in ", seconds.size(), " of ", Plural(runs.size(), "run"));
        }
        chart.high = std::max(chart.high, row->spread.high);
      });
  chart.high = RoundUp(chart.high, kTicks);
  return Draw(chart);
}

std::string Throughput(const Comparison& comparison, const Findings& findings) {
  LineChart chart = OverWorkers(comparison, CurvesOf(&Standing::throughputs, comparison, findings));
  if (chart.curves.empty()) return "";
  chart.title = "Throughput";
  chart.y_label = "samples a second";
  return Draw(chart);
}

std::string SpeedUp(const Comparison& comparison, const Findings& findings) {
  LineChart chart = OverWorkers(comparison, CurvesOf(&Standing::throughputs, comparison, findings, true));
  if (chart.curves.empty()) return "";
  const double most = comparison.workers.back();
  const Look ideal{"#888888", "2 4", 0, 0};
  chart.curves.push_back({"ideal", ideal, {{0, 0, 0, 0}, {most, most, most, most}}, false});
  chart.y_high = RoundUp(std::max(most, HighestOf(chart.curves)), kTicks);
  chart.title = "Speed-up against one worker";
  chart.y_label = "times the throughput of one worker";
  return Draw(chart);
}

std::string StalenessDistributions(const Comparison& comparison) {
  const int workers = comparison.workers.back();
  HistogramChart chart;
  chart.title = absl::StrCat("Staleness of contributions, ", Plural(workers, "worker"));
  chart.x_label = "updates of the center between a worker's fetch and the application of its contribution";
  double p99 = 1;
  for (size_t i = 0; i < comparison.algorithms.size(); ++i) {
    const std::vector<const RunResult*> runs = RunsOf(comparison, comparison.algorithms[i].name, workers);
    const Histogram histogram = StalenessOf(comparison.algorithms[i], runs, LookOf(static_cast<int>(i)));
    if (histogram.shares.empty()) continue;
    for (const RunResult* run : runs) p99 = std::max(p99, run->staleness_p99);
    chart.histograms.push_back(histogram);
  }
  if (chart.histograms.empty()) return "";
  chart.high = std::min(kMaxColumns, static_cast<uint64_t>(p99) + 1);
  return Draw(chart);
}

std::string WorkersTime(const Comparison& comparison) {
  RowChart chart;
  chart.title = "Where the workers' time went";
  chart.x_label = "share of the time of all workers' training threads";
  chart.unit = Unit::kPercent;
  chart.part_names = {"computing", "sending", "waiting for weights", "waiting for data"};
  chart.rows =
      Rows(comparison, [](const AlgorithmFacts&, const std::vector<const RunResult*>& runs, ChartRow* row) {
        double all = 0;
        for (double RunResult::*part : {&RunResult::compute_seconds, &RunResult::push_seconds,
                                        &RunResult::pull_seconds, &RunResult::data_seconds}) {
          row->parts.push_back(MeanOf(runs, part));
          all += row->parts.back();
        }
        for (double& part : row->parts) part = all > 0 ? part / all : 0;
        row->note = absl::StrFormat("%.0f %% computing", 100 * row->parts[0]);
      });
  return Draw(chart);
}

std::string BytesOnTheWire(const Comparison& comparison) {
  RowChart chart;
  chart.title = "Bytes on the wire";
  chart.x_label = "kilobytes for each sample trained (payload)";
  chart.part_names = {"pushed to the servers", "pulled from them"};
  chart.high = 0;
  chart.rows =
      Rows(comparison, [&](const AlgorithmFacts&, const std::vector<const RunResult*>& runs, ChartRow* row) {
        const double samples = std::max(1.0, MeanOf(runs, &RunResult::samples));
        row->parts = {MeanOf(runs, &RunResult::bytes_pushed) / samples / 1000,
                      MeanOf(runs, &RunResult::bytes_pulled) / samples / 1000};
        row->note = absl::StrCat(Bytes(MeanOf(runs, &RunResult::bytes_pushed)), " + ",
                                 Bytes(MeanOf(runs, &RunResult::bytes_pulled)), " a run");
        chart.high = std::max(chart.high, row->parts[0] + row->parts[1]);
      });
  chart.high = RoundUp(chart.high, kTicks);
  return Draw(chart);
}

std::string MomentumBars(const Comparison& comparison) {
  RowChart chart;
  chart.title = "Momentum: given to the optimizer, and added by staleness";
  chart.x_label = "momentum";
  chart.part_names = {"given", "implicit"};
  chart.high = 0;
  chart.rows = Rows(
      comparison, [&](const AlgorithmFacts& facts, const std::vector<const RunResult*>& runs, ChartRow* row) {
        const Momentum momentum =
            MomentumOf(facts, runs.front()->momentum, MeanOf(runs, &RunResult::staleness_mean));
        row->parts = {std::max(0.0, momentum.given.value_or(0)), momentum.implicit.value_or(0)};
        const std::string given = momentum.given.has_value() ? absl::StrFormat("%.2f", *momentum.given)
                                  : facts.closed_loop        ? "steered"
                                                             : "none";
        row->note = momentum.implicit.has_value() ? absl::StrFormat("%s + %.2f", given, *momentum.implicit)
                                                  : absl::StrCat(given, " (implicit: not modelled)");
        chart.high = std::max(chart.high, row->parts[0] + row->parts[1]);
      });
  chart.high = RoundUp(chart.high, kTicks);
  return Draw(chart);
}

}  // namespace catchment
