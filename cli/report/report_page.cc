#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/report/findings.h"
#include "cli/report/markup.h"
#include "cli/report/report.h"
#include "common/base/text.h"

namespace catchment {
namespace {

using TableRows = std::vector<std::vector<std::string>>;

std::string Section(const std::string& title) { return absl::StrCat("<h2>", EscapeXml(title), "</h2>\n"); }

// Returns the line under the title.
std::string Subtitle(const Comparison& comparison) {
  std::vector<std::string> names;
  for (const AlgorithmFacts& facts : comparison.algorithms) names.push_back(facts.name);
  std::string line = absl::StrCat(absl::StrJoin(names, ", "), "; ", absl::StrJoin(comparison.workers, ", "),
                                  " workers; ", Plural(comparison.seeds, "seed"));
  if (!comparison.budget.empty()) absl::StrAppend(&line, "; budget ", comparison.budget);
  if (!comparison.stragglers.empty()) absl::StrAppend(&line, "; emulated: ", DescribeStragglers(comparison));
  if (!comparison.simulated.empty()) absl::StrAppend(&line, "; simulated: ", comparison.simulated);
  return HtmlParagraph(line);
}

std::string HowItIsDecided(const Comparison& comparison, const Findings& findings) {
  std::string words;
  if (findings.target > 0) {
    words = findings.target_given ? "The target was given. "
                                  : "The target is the highest multiple of 0.5 % that at least half of the "
                                    "algorithms reach in every run with the most workers. ";
    absl::StrAppend(&words, "The time at which a run reaches it is interpolated linearly between scores. ");
  }
  if (comparison.seeds == 1) return HtmlParagraph(words + "One seed cannot tell a difference from noise.");
  absl::StrAppend(
      &words,
      "A difference is called statistically significant if the 95 % confidence interval of the ratio, seed "
      "by seed (paired t-test on the logarithms), leaves 1 out. The two are the best of their kinds in the "
      "same runs, so the level is corrected for the number of pairs that they were chosen from (Bonferroni). "
      "In brackets: the lowest and the highest seed.");
  return HtmlParagraph(words);
}

// Returns a warning if there are fewer processors than threads.
std::string MachineWarning(const Comparison& comparison) {
  if (!comparison.machine.has_value()) return "";
  const int processors = comparison.machine->processors;
  if (comparison.workers.back() * comparison.threads <= processors) return "";
  return HtmlParagraph(absl::StrCat("This machine has ", Plural(processors, "processor"), ": with ",
                                    Plural(comparison.workers.back(), "worker"),
                                    " they share them with servers and evaluator, so throughput "
                                    "cannot rise as it would on several machines. While a straggler "
                                    "sleeps, the others use its processor."));
}

std::string AccuracySection(const Comparison& comparison, const Findings& findings) {
  std::string pictures;
  for (auto workers = comparison.workers.rbegin(); workers != comparison.workers.rend(); ++workers) {
    absl::StrAppend(&pictures, HtmlFigure({AccuracyOverTime(comparison, findings, *workers),
                                           AccuracyOverSamples(comparison, findings, *workers)},
                                          ""));
  }
  if (pictures.empty()) return "";
  return absl::StrCat(
      Section("Accuracy"), HtmlFigure({AccuracyAtTheEnd(comparison, findings)}, ""), pictures,
      HtmlParagraph(absl::StrFormat("Lines: means over seeds; bands: from the lowest to the highest "
                                    "seed. Over time and samples, values below %.0f %% are cut off.",
                                    100 * LowestShown(comparison, findings))));
}

std::string MeasureValue(Duel::Measure measure, const Spread& spread) {
  if (measure == Duel::kSecondsToTarget) return SecondsWithSpread(spread);
  return measure == Duel::kSamplesToTarget ? CountWithSpread(spread) : PercentWithSpread(spread);
}

std::string DuelTable(const Findings& findings) {
  TableRows rows = {{"measure", "best that waits for all", "best that does not", "wins", "workers", "ratio"}};
  for (const Duel& duel : findings.duels) {
    rows.push_back(
        {MeasureInWords(duel.measure),
         absl::StrCat(duel.synchronous, ": ", MeasureValue(duel.measure, duel.synchronous_values)),
         absl::StrCat(duel.asynchronous, ": ", MeasureValue(duel.measure, duel.asynchronous_values)),
         duel.synchronous_wins()    ? "waiting"
         : duel.asynchronous_wins() ? "not waiting"
                                    : "neither",
         absl::StrCat(duel.workers), RatioInWords(duel.ratio)});
  }
  return HtmlTable(rows, 4);
}

std::string SynchronousSection(const Findings& findings) {
  if (findings.duels.empty()) return "";
  return absl::StrCat(Section("Where synchronous wins"), HtmlParagraph(WhereSynchronousWins(findings)),
                      DuelTable(findings),
                      HtmlParagraph("Ratio: waiting over not waiting, with its 95 % confidence interval; "
                                    "below 1, waiting is better. Lower is better in all measures."));
}

// Returns the accuracy or, if `scored` is false, the loss.
std::string ScoreAtTheEnd(const Standing& standing, bool scored) {
  if (scored) return standing.accuracies.empty() ? "" : PercentWithSpread(SpreadOf(standing.accuracies));
  return standing.losses.empty() ? "" : NumberWithSpread(SpreadOf(standing.losses));
}

std::string StandingsTable(const Findings& findings) {
  const bool scored = std::any_of(findings.standings.begin(), findings.standings.end(),
                                  [](const Standing& standing) { return !standing.accuracies.empty(); });
  TableRows rows = {{"algorithm", "workers", "reached", "time to target", "samples to target",
                     scored ? "accuracy at the end" : "test loss at the end", "samples a second",
                     "learning rate", "momentum"}};
  for (const Standing& standing : findings.standings) {
    const bool any = !standing.seconds.empty();
    rows.push_back({standing.algorithm, absl::StrCat(standing.workers),
                    absl::StrCat(standing.seconds.size(), " of ", standing.runs),
                    any ? SecondsWithSpread(SpreadOf(standing.seconds)) : "",
                    any ? CountWithSpread(SpreadOf(standing.samples)) : "", ScoreAtTheEnd(standing, scored),
                    CountWithSpread(SpreadOf(standing.throughputs)), Short(standing.learning_rate),
                    standing.momentum.has_value() ? Short(*standing.momentum) : ""});
  }
  return HtmlTable(rows);
}

std::string SettingsTable(const Comparison& comparison) {
  TableRows rows = {{"algorithm", "waits for all", "optimizer"}};
  for (const AlgorithmFacts& facts : comparison.algorithms)
    rows.push_back({facts.name, facts.synchronous ? "yes" : "no", facts.optimizer});
  return HtmlTable(rows, 3);
}

// Returns "97.2 %", "loss 0.31", "diverged" or "failed".
std::string ScoreOf(const RunResult& run) {
  if (run.diverged) return "diverged";
  if (run.accuracy.has_value()) return Percent(*run.accuracy);
  return run.loss.has_value() ? absl::StrFormat("loss %.4g", *run.loss) : "failed";
}

// Returns the result and the cost of the search for each algorithm with each number of workers.
std::string FoundTable(const Comparison& comparison) {
  TableRows rows = {{"algorithm", "workers", "learning rate", "momentum", "set by", "cost of the search"}};
  std::set<std::pair<std::string, int>> seen;
  for (const RunResult& run : comparison.runs) {
    if (!seen.insert({run.algorithm, run.workers}).second) continue;
    const double cost = SearchCost(comparison, run.algorithm, run.workers);
    const bool found =
        std::any_of(comparison.searched.begin(), comparison.searched.end(), [&](const auto& trial) {
          return trial.chosen && trial.run.algorithm == run.algorithm && trial.run.workers == run.workers;
        });
    rows.push_back({run.algorithm, absl::StrCat(run.workers), Short(run.learning_rate),
                    run.momentum.has_value() ? Short(*run.momentum) : "",
                    found      ? "search"
                    : cost > 0 ? "job or preset: no trial of the search trained"
                               : "job, preset or --set",
                    cost > 0 ? absl::StrFormat("%.2f runs", cost) : "none"});
  }
  return HtmlTable(rows, 2);
}

std::string SearchSection(const Comparison& comparison) {
  const std::string found = absl::StrCat(Section("Learning rates"), FoundTable(comparison));
  if (comparison.searched.empty()) return found;
  TableRows rows = {
      {"algorithm", "workers", "tried: learning rate", "momentum", "share of the budget", "test score", ""}};
  for (const SearchTrialResult& trial : comparison.searched) {
    const RunResult& run = trial.run;
    rows.push_back({run.algorithm, absl::StrCat(run.workers), Short(run.learning_rate),
                    run.momentum.has_value() ? Short(*run.momentum) : "", Percent(trial.share), ScoreOf(run),
                    trial.chosen ? "chosen" : ""});
  }
  return absl::StrCat(
      found,
      HtmlParagraph(absl::StrCat(
          "Successive halving found the learning rate and the momentum of each row (Jamieson and Talwalkar "
          "2016, arXiv:1502.07943): trials train with a small share of the budget, "
          "a constant learning rate and seed ",
          comparison.searched.front().run.seed,
          ", which no run above uses; the best third start over with three times the share. The cost is that "
          "of all trials, in units of full runs.")),
      "<details><summary>All trials</summary>\n", HtmlTable(rows, 2), "</details>\n");
}

std::string RunsTable(const Comparison& comparison) {
  TableRows rows = {{"run", "time", "updates", "accuracy", "test loss", "staleness mean", "99 of 100", ""}};
  for (const RunResult& run : comparison.runs) {
    rows.push_back({run.directory, Seconds(run.seconds), Count(std::llround(run.updates)),
                    run.accuracy.has_value() ? Percent(*run.accuracy) : "",
                    run.loss.has_value() ? absl::StrFormat("%.4f", *run.loss) : "",
                    absl::StrFormat("%.2f", run.staleness_mean), Short(run.staleness_p99),
                    run.done ? "" : absl::StrCat("not done: ", run.reason)});
  }
  return HtmlTable(rows);
}

std::string LeftOutTable(const Comparison& comparison) {
  if (comparison.left_out.empty()) return "";
  TableRows rows = {{"left out", "workers", "why"}};
  for (const LeftOutPair& pair : comparison.left_out) {
    rows.push_back({pair.algorithm, absl::StrCat(pair.workers), pair.reason});
  }
  return HtmlTable(rows, 3);
}

std::string MomentumSection(const Comparison& comparison) {
  return absl::StrCat(
      Section("Momentum"),
      HtmlFigure({MomentumBars(comparison)},
                 "Implicit: the momentum that asynchrony adds in the model of Mitliagkas et al. 2016 "
                 "(arXiv:1605.09774), staleness / (1 + staleness) at the measured mean. If a compensation "
                 "lowers the given momentum as staleness rises, its value at that mean is shown. The model "
                 "applies only to gradients that are applied as they arrive."));
}

std::string MachineTable(const Comparison& comparison) {
  TableRows rows = {{"machine", ""}};
  if (const std::optional<Machine>& machine = comparison.machine) {
    rows.push_back({"processor", machine->processor});
    rows.push_back({"processors", absl::StrCat(machine->processors)});
    rows.push_back({"memory", Bytes(machine->memory_bytes)});
    rows.push_back({"system", machine->system});
  }
  rows.push_back({"version", comparison.version});
  if (comparison.servers > 0) rows.push_back({"servers", absl::StrCat(comparison.servers)});
  if (comparison.threads > 0) rows.push_back({"threads of a worker", absl::StrCat(comparison.threads)});
  rows.push_back({"device", comparison.runs.empty() ? "" : comparison.runs.front().device});
  return HtmlTable(rows, 2);
}

std::string RepeatSection(const Comparison& comparison) {
  return absl::StrCat(Section("How to repeat it"), HtmlCommand(comparison.command), MachineTable(comparison),
                      SettingsTable(comparison), LeftOutTable(comparison), RunsTable(comparison),
                      HtmlParagraph("The job of the first run, with all defaults. The others differ in "
                                    "algorithm, workers and seed; their result directories contain them."),
                      "<pre class=\"job\">", EscapeXml(comparison.job), "</pre>\n");
}

}  // namespace

std::string ReportPage(const Comparison& comparison, const Findings& findings) {
  const std::string title = absl::StrCat("Algorithms compared: ", comparison.job_name);
  return HtmlPage(
      title,
      absl::StrCat(
          "<h1>", EscapeXml(title), "</h1>\n", Subtitle(comparison), "<p class=\"answer\">",
          EscapeXml(Answer(comparison, findings)), "</p>\n", HowItIsDecided(comparison, findings),
          MachineWarning(comparison), AccuracySection(comparison, findings), Section("Time to the target"),
          HtmlFigure({TimeToTarget(comparison, findings)}, ""),
          HtmlFigure({TimeToTargetOverWorkers(comparison, findings)}, ""), StandingsTable(findings),
          SynchronousSection(findings), Section("Throughput and speed-up"),
          HtmlFigure({Throughput(comparison, findings), SpeedUp(comparison, findings)},
                     "Means over seeds; bands: from the lowest to the highest."),
          Section("Staleness"),
          HtmlFigure({StalenessDistributions(comparison)},
                     "Each distribution is scaled to its largest share, which is printed on it."),
          Section("Where the workers' time went"),
          HtmlFigure(
              {WorkersTime(comparison)},
              "Sending: until the last part of a contribution has been sent. Waiting for weights includes "
              "any waiting for slower workers. The sleep of an emulated straggler counts as computing."),
          Section("Bytes on the wire"), HtmlFigure({BytesOnTheWire(comparison)}, ""),
          MomentumSection(comparison), SearchSection(comparison), RepeatSection(comparison)));
}

}  // namespace catchment
