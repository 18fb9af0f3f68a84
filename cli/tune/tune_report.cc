#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/report/chart.h"
#include "cli/report/markup.h"
#include "cli/tune/tune.h"
#include "common/base/text.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;
using TableRows = std::vector<std::vector<std::string>>;

constexpr char kNone[] = "–";

Json OrNull(const std::optional<double>& value) {
  return value.has_value() && std::isfinite(*value) ? Json(*value) : Json();
}

// Returns the run of a trial in a rung; null if the trial did not reach it.
const RunResult* RunOf(const TuneResult& result, size_t rung, int trial) {
  const std::vector<int>& trials = result.halving.rungs[rung].trials;
  const auto found = std::find(trials.begin(), trials.end(), trial);
  return found == trials.end() ? nullptr : &result.runs[rung][found - trials.begin()];
}

std::string ScoreText(const RunResult* run) {
  if (run == nullptr) return kNone;
  if (run->diverged) return "diverged";
  if (!run->done) return "failed";
  if (run->accuracy) return Percent(*run->accuracy);
  return run->loss ? absl::StrCat("loss ", Short(*run->loss, 4)) : kNone;
}

Json SettingsJson(const TuneResult& result, int trial) {
  Json settings = Json::object();
  for (size_t i = 0; i < result.over.size(); ++i)
    settings[result.over[i].path] = result.trials[trial].values[i];
  return settings;
}

// Returns the trials from the best to the worst: those that got further first.
std::vector<int> Ranked(const TuneResult& result) {
  std::vector<int> ranked;
  for (auto rung = result.halving.rungs.rbegin(); rung != result.halving.rungs.rend(); ++rung) {
    const int all = static_cast<int>(rung->trials.size());
    std::vector<int> order = BestTrials(rung->trials, rung->scores, all);
    order.insert(order.end(), rung->trials.begin(), rung->trials.end());
    for (const int trial : order) {
      if (std::find(ranked.begin(), ranked.end(), trial) == ranked.end()) ranked.push_back(trial);
    }
  }
  return ranked;
}

std::string TrialsTable(const TuneResult& result) {
  TableRows rows(1, {"trial"});
  for (const SearchDimension& dimension : result.over) rows[0].push_back(dimension.path);
  for (const RungResult& rung : result.halving.rungs)
    rows[0].push_back(absl::StrCat(Percent(rung.rung.share), " of the budget"));
  for (const int trial : Ranked(result)) {
    std::vector<std::string>& row = rows.emplace_back(1, absl::StrCat(trial + 1));
    row.insert(row.end(), result.trials[trial].values.begin(), result.trials[trial].values.end());
    for (size_t rung = 0; rung < result.halving.rungs.size(); ++rung)
      row.push_back(ScoreText(RunOf(result, rung, trial)));
  }
  return HtmlTable(rows);
}

std::string ImportanceTable(const TuneResult& result) {
  TableRows rows = {{"field", "share of the variance"}};
  for (size_t i = 0; i < result.over.size(); ++i) {
    rows.push_back(
        {result.over[i].path, result.importance[i] ? Percent(*result.importance[i]) : "too few results"});
  }
  return HtmlTable(rows);
}

// Returns the trials' accuracies over the rungs; empty without accuracies.
std::string HalvingChart(const TuneResult& result) {
  LineChart chart;
  chart.title = "Test accuracy of each trial";
  chart.x_label = "rung";
  chart.y_unit = Unit::kPercent;
  chart.x_low = 1;
  chart.x_high = std::max<double>(2, static_cast<double>(result.halving.rungs.size()));
  double low = 1, high = 0;
  for (const int trial : Ranked(result)) {
    Curve curve{.name = trial == result.halving.best ? absl::StrCat("trial ", trial + 1) : "",
                .look = LookOf(trial == result.halving.best ? 1 : 0),
                .markers = true};
    for (size_t rung = 0; rung < result.halving.rungs.size(); ++rung) {
      const RunResult* const run = RunOf(result, rung, trial);
      if (run == nullptr || !run->done || !run->accuracy) continue;
      const double y = *run->accuracy;
      low = std::min(low, y), high = std::max(high, y);
      curve.points.push_back({static_cast<double>(rung + 1), y, y, y});
    }
    if (!curve.points.empty()) chart.curves.push_back(curve);
  }
  if (chart.curves.empty()) return "";
  for (size_t rung = 1; rung <= result.halving.rungs.size(); ++rung)
    chart.x_ticks.push_back(static_cast<double>(rung));
  // The best trial is drawn over the others.
  std::reverse(chart.curves.begin(), chart.curves.end());
  chart.y_low = std::max(0.0, low - 0.01);
  chart.y_high = std::min(1.0, high + 0.01);
  return Draw(chart);
}

std::string SettingsOf(const TuneResult& result, int trial) {
  std::vector<std::string> settings;
  for (size_t i = 0; i < result.over.size(); ++i)
    settings.push_back(absl::StrCat(result.over[i].path, "=", result.trials[trial].values[i]));
  return absl::StrJoin(settings, ", ");
}

std::string Reasons(const TuneResult& result) {
  TableRows rows = {{"run", "reason"}};
  for (size_t i = 0; i < result.trials.size(); ++i) {
    if (!result.trials[i].invalid.empty())
      rows.push_back({absl::StrCat("trial ", i + 1), result.trials[i].invalid});
  }
  for (const std::vector<RunResult>& rung : result.runs) {
    for (const RunResult& run : rung) {
      if (!run.done && !run.directory.empty()) rows.push_back({run.directory, OneLine(run.reason)});
    }
  }
  if (rows.size() == 1) return "";
  return absl::StrCat("<h2>Runs without a result</h2>\n", HtmlTable(rows, 2));
}

}  // namespace

const RunResult* BestRun(const TuneResult& result) {
  if (result.halving.best < 0) return nullptr;
  for (size_t rung = result.halving.rungs.size(); rung-- > 0;) {
    const RunResult* const run = RunOf(result, rung, result.halving.best);
    if (run != nullptr && run->done) return run;
  }
  return nullptr;
}

std::string AnswerOf(const TuneResult& result) {
  const RunResult* const best = BestRun(result);
  if (best == nullptr) return "No trial has a result.";
  return absl::StrCat("The best of ", Plural(result.trials.size(), "trial"), " is trial ",
                      result.halving.best + 1, ", with ", ScoreText(best), ": ",
                      SettingsOf(result, result.halving.best));
}

Json TuneJson(const TuneResult& result) {
  Json json;
  json["schema"] = 1;
  json["command"] = result.command;
  json["job_name"] = result.job_name;
  json["budget"] = result.budget;
  json["simulated"] = result.simulated.empty() ? Json() : Json(result.simulated);
  json["trials"] = Json::array();
  for (size_t i = 0; i < result.trials.size(); ++i) {
    const std::string& invalid = result.trials[i].invalid;
    json["trials"].push_back({{"trial", i + 1},
                              {"settings", SettingsJson(result, static_cast<int>(i))},
                              {"invalid", invalid.empty() ? Json() : Json(invalid)}});
  }
  json["rungs"] = Json::array();
  for (size_t rung = 0; rung < result.halving.rungs.size(); ++rung) {
    Json runs = Json::array();
    for (const int trial : result.halving.rungs[rung].trials) {
      const RunResult& run = *RunOf(result, rung, trial);
      runs.push_back({{"trial", trial + 1},
                      {"directory", run.directory},
                      {"done", run.done},
                      {"diverged", run.diverged},
                      {"reason", run.reason},
                      {"samples", run.samples},
                      {"test_accuracy", OrNull(run.accuracy)},
                      {"test_loss", OrNull(run.loss)}});
    }
    json["rungs"].push_back({{"share", result.halving.rungs[rung].rung.share}, {"runs", runs}});
  }
  json["importance"] = Json::object();
  for (size_t i = 0; i < result.over.size(); ++i)
    json["importance"][result.over[i].path] = OrNull(result.importance[i]);
  json["best"] = Json();
  if (const RunResult* const best = BestRun(result)) {
    json["best"] = {{"trial", result.halving.best + 1},
                    {"settings", SettingsJson(result, result.halving.best)},
                    {"test_accuracy", OrNull(best->accuracy)},
                    {"test_loss", OrNull(best->loss)}};
  }
  return json;
}

std::string TunePage(const TuneResult& result) {
  const std::string title = absl::StrCat("Search: ", result.job_name);
  const std::string simulated =
      result.simulated.empty() ? "" : HtmlParagraph(absl::StrCat("Simulated: ", result.simulated, "."));
  return HtmlPage(title, absl::StrCat("<h1>", EscapeXml(title), "</h1>\n<p class=\"answer\">",
                                      EscapeXml(AnswerOf(result)), "</p>\n", simulated,
                                      HtmlParagraph("In each rung the trials start over with a larger share "
                                                    "of the budget; the best third continue in the next."),
                                      "<h2>Halving</h2>\n", HtmlFigure({HalvingChart(result)}, ""),
                                      "<h2>Trials</h2>\n", TrialsTable(result), "<h2>Importance</h2>\n",
                                      HtmlParagraph("The share of the variance between the trials of the "
                                                    "first rung that each field explains on its own."),
                                      ImportanceTable(result), Reasons(result), "<h2>How to repeat it</h2>\n",
                                      HtmlCommand(result.command)));
}

}  // namespace catchment
