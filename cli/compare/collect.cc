#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/base/process.h"
#include "cli/compare/compare_directory.h"
#include "cli/report/findings.h"
#include "cli/report/report.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/base/version.h"
#include "common/job/algorithm_facts.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"

namespace catchment {
namespace {

// Returns the first run of an algorithm, from which its settings are read.
const PlannedRun* FirstOf(const ComparePlan& plan, const std::string& algorithm) {
  for (const PlannedRun& run : plan.runs) {
    if (run.algorithm == algorithm) return &run;
  }
  return nullptr;
}

}  // namespace

AlgorithmFacts FactsOf(const std::string& name, const v1::Job& job) {
  const v1::Algorithm& algorithm = job.algorithm();
  AlgorithmFacts facts;
  facts.name = name;
  facts.synchronous = IsSynchronous(algorithm.consistency());
  const v1::Optimizer& optimizer = algorithm.contribution().has_pseudo_gradient()
                                       ? algorithm.contribution().pseudo_gradient().local_optimizer()
                                       : job.optimizer();
  facts.optimizer = v1::Optimizer::Kind_Name(optimizer.kind());
  // The model does not apply to elastic differences and to updates of several steps.
  facts.implicit = algorithm.contribution().has_gradient();
  if (algorithm.compensation().has_open_loop_momentum()) {
    facts.open_loop_minimum = algorithm.compensation().open_loop_momentum().min_momentum();
  }
  facts.closed_loop = algorithm.compensation().has_closed_loop_momentum();
  return facts;
}

void SetRates(const v1::Job& job, RunResult* result) {
  const Hyperparameters hyperparameters = HyperparametersOf(job);
  result->learning_rate = hyperparameters.learning_rate;
  result->momentum = hyperparameters.momentum;
}

RunResult CollectRun(const CompareDirectory& directory, const PlannedRun& run) {
  RunResult result;
  result.algorithm = run.algorithm;
  result.workers = run.workers;
  result.seed = run.seed;
  result.directory = run.directory;
  SetRates(run.job, &result);
  const std::string path = directory.PathOf(run);
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(path + "/summary.json");
  if (!summary.ok()) {
    result.reason = "it did not write summary.json";
    return result;
  }
  result.reason = TextOrEmpty(*summary, "reason");
  const RunOutcome outcome = directory.OutcomeOf(run);
  result.diverged = outcome == RunOutcome::kDiverged;
  if (outcome != RunOutcome::kDone) return result;
  ReadResult(*summary, ReadTextFile(path + "/metrics.jsonl").value_or(""), &result);
  result.done = true;
  return result;
}

std::optional<TrialScore> ScoreOf(const RunResult& run) {
  if (!run.done || (!run.accuracy.has_value() && !run.loss.has_value())) return std::nullopt;
  return TrialScore(run.accuracy.value_or(0), -run.loss.value_or(0));
}

std::string ReportedCommand(const std::string& command, const std::vector<std::string>& args) {
  std::vector<std::string> shown;
  for (const std::string& arg : args) {
    const size_t path = absl::StartsWith(arg, "/") ? 0 : absl::StartsWith(arg, "--out=/") ? 6 : arg.size();
    const absl::string_view kept = absl::StripSuffix(absl::string_view(arg).substr(path), "/");
    shown.push_back(absl::StrCat(arg.substr(0, path), kept.substr(kept.rfind('/') + 1)));
  }
  return ShellCommand(command, shown);
}

std::string VersionLine() { return absl::StrCat("catchment ", BuildVersion()); }

absl::Status WriteReport(const Comparison& comparison, const std::string& directory, std::ostream* out) {
  const Findings findings = Find(comparison);
  const std::string html = directory + kReportPage, json = directory + kReportJson;
  absl::Status status = WriteFile(json, ReportJson(comparison, findings).dump(2) + "\n");
  status.Update(WriteFile(html, ReportPage(comparison, findings)));
  RETURN_IF_ERROR(status);
  *out << Answer(comparison, findings) << '\n'
       << WhereSynchronousWins(findings) << "\n\nreport  " << html << "\nfigures " << json << '\n'
       << std::flush;
  return status;
}

absl::Status Conclude(const Comparison& comparison, const std::string& directory, std::ostream* out) {
  std::vector<std::string> diverged;
  size_t done = 0;
  for (const RunResult& run : comparison.runs) {
    done += run.done;
    if (!run.diverged) continue;
    diverged.push_back(
        absl::StrCat(run.algorithm, " with ", Plural(run.workers, "worker"), ", seed ", run.seed));
  }
  if (done + diverged.size() == 0)
    return absl::UnavailableError("no run has finished, so there is nothing to report");
  *out << '\n';
  RETURN_IF_ERROR(WriteReport(comparison, directory, out));
  const std::string all = Plural(comparison.runs.size(), "run");
  if (!diverged.empty()) {
    *out << '\n'
         << diverged.size() << " of " << all << " diverged: " << absl::StrJoin(diverged, "; ") << '\n'
         << std::flush;
  }
  const size_t failed = comparison.runs.size() - done - diverged.size();
  if (failed == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(failed, " of ", all, " failed and are not in the report; the same command repeats them"));
}

Comparison Collect(const CompareOptions& options, const CompareDirectory& directory,
                   const ComparePlan& plan) {
  Comparison comparison;
  comparison.command = ReportedCommand("catchment compare", options.args);
  comparison.version = VersionLine();
  comparison.job_name = plan.runs.front().job.name();
  comparison.job = JobText(plan.runs.front().job);
  comparison.budget = ToString(options.budget);
  for (const v1::Straggler& straggler : options.stragglers)
    comparison.stragglers.push_back(ToString(straggler));
  comparison.servers = options.servers;
  comparison.threads = options.threads;
  comparison.seeds = options.seeds;
  comparison.wanted_target = options.target;
  for (const std::string& algorithm : options.algorithms)
    comparison.algorithms.push_back(FactsOf(algorithm, FirstOf(plan, algorithm)->job));
  comparison.workers = options.workers;
  if (options.launcher == LauncherKind::kLocal) comparison.machine = ThisMachine();
  for (const PlannedRun& run : plan.runs) comparison.runs.push_back(CollectRun(directory, run));
  for (const LeftOut& out : plan.left_out) {
    comparison.left_out.push_back({out.algorithm, out.workers, out.reason});
  }
  return comparison;
}

}  // namespace catchment
