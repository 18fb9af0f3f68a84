#include "cli/tune/tune.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/compare/compare_directory.h"
#include "cli/compare/compare_plan.h"
#include "cli/compare/launcher.h"
#include "cli/compare/search.h"
#include "cli/compare/slurm_launcher.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"

namespace catchment {
namespace {

constexpr int kGroups = 3;

std::string Override(const SearchDimension& dimension, const std::string& value) {
  return absl::StrCat(dimension.path, "=", value);
}

// Finds out which ranges are of whole numbers, and that the job has all fields.
absl::Status CheckFields(const v1::Job& given, std::vector<SearchDimension>* over) {
  for (SearchDimension& dimension : *over) {
    v1::Job job = given;
    const std::vector<std::string> values =
        dimension.choices.empty() ? std::vector{Short(dimension.low + 0.3)} : dimension.choices;
    absl::Status status;
    for (const std::string& value : values) {
      status = ApplyOverrides({Override(dimension, value)}, &job);
      if (!status.ok()) break;
    }
    if (status.ok()) continue;
    dimension.whole = dimension.choices.empty() && std::ceil(dimension.low) <= std::floor(dimension.high);
    job = given;
    if (dimension.whole && ApplyOverrides({Override(dimension, ValueAt(dimension, 0.5))}, &job).ok())
      continue;
    return absl::InvalidArgumentError(absl::StrCat("--over: ", status.message()));
  }
  return absl::OkStatus();
}

std::vector<std::string> OverridesOf(const std::vector<SearchDimension>& over, const SearchTrial& trial) {
  std::vector<std::string> overrides;
  for (size_t i = 0; i < over.size(); ++i) overrides.push_back(Override(over[i], trial.values[i]));
  return overrides;
}

// The trials of one search, and the jobs of their runs.
class Trials {
 public:
  Trials(const TuneOptions& options, const v1::Job& given) : options_(options), given_(given) {
    for (int trial = 0; trial < options.trials; ++trial) {
      const std::vector<double> point = TrialPoint(trial, static_cast<int>(options.over.size()));
      SearchTrial& one = trials_.emplace_back();
      for (size_t i = 0; i < point.size(); ++i) one.values.push_back(ValueAt(options.over[i], point[i]));
    }
  }

  // Checks all jobs before the first run. InvalidArgument if none with some value of a dimension is valid.
  absl::Status Check(double least_share) {
    for (size_t i = 0; i < trials_.size(); ++i)
      trials_[i].invalid = std::string(Plan(static_cast<int>(i), 0, least_share).status().message());
    for (size_t i = 0; i < options_.over.size(); ++i) {
      const SearchDimension& dimension = options_.over[i];
      for (const SearchTrial& trial : trials_) {
        if (trial.invalid.empty()) continue;
        const bool valid = std::any_of(trials_.begin(), trials_.end(), [&](const SearchTrial& other) {
          return other.invalid.empty() && (dimension.choices.empty() || other.values[i] == trial.values[i]);
        });
        if (valid) continue;
        return absl::InvalidArgumentError(absl::StrCat("--over: no trial with ",
                                                       Override(dimension, trial.values[i]),
                                                       " has a valid job:\n", trial.invalid));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<PlannedRun> Plan(int trial, int rung, double share) const {
    ASSIGN_OR_RETURN(const v1::Job job, JobOf(trial));
    PlannedRun run;
    run.directory = absl::StrCat("runs/trial-", trial + 1, "-rung-", rung + 1);
    run.algorithm = absl::StrCat("trial ", trial + 1, ", rung ", rung + 1);
    run.workers = options_.runs.plan.workers.front();
    run.seed = given_.has_seed() ? given_.seed() : 1;
    run.seconds = options_.runs.plan.budget.seconds * share;
    ASSIGN_OR_RETURN(run.job, JobWithShare(options_.runs.plan, job, run.workers, run.seed, share));
    return run;
  }

  // Returns the job of a trial as a user would write it.
  absl::StatusOr<v1::Job> JobOf(int trial) const {
    v1::Job job = given_;
    RETURN_IF_ERROR(ApplyOverrides(OverridesOf(options_.over, trials_[trial]), &job));
    return job;
  }

  const std::vector<SearchTrial>& all() const { return trials_; }

 private:
  const TuneOptions& options_;
  const v1::Job& given_;
  std::vector<SearchTrial> trials_;
};

std::vector<std::optional<double>> ImportanceOf(const TuneResult& result) {
  const RungResult& first = result.halving.rungs.front();
  const bool accuracies = BestRun(result) != nullptr && BestRun(result)->accuracy.has_value();
  std::vector<std::optional<double>> all;
  for (size_t i = 0; i < result.over.size(); ++i) {
    std::vector<double> coordinates, scores;
    for (size_t t = 0; t < first.trials.size(); ++t) {
      if (!first.scores[t].has_value()) continue;
      const double score = accuracies ? first.scores[t]->first : first.scores[t]->second;
      if (!std::isfinite(score)) continue;
      coordinates.push_back(TrialPoint(first.trials[t], static_cast<int>(result.over.size()))[i]);
      scores.push_back(score);
    }
    const size_t choices = result.over[i].choices.size();
    all.push_back(Importance(coordinates, scores, choices > 0 ? static_cast<int>(choices) : kGroups));
  }
  return all;
}

// Writes the report and the best job, and prints their paths.
absl::Status WriteResult(const TuneOptions& options, const TuneResult& result, const Trials& trials,
                         const std::string& directory, std::ostream* out) {
  const std::string page = directory + kReportPage, json = directory + kReportJson;
  absl::Status status = WriteFile(json, TuneJson(result).dump(2) + "\n");
  status.Update(WriteFile(page, TunePage(result)));
  RETURN_IF_ERROR(status);
  if (BestRun(result) == nullptr)
    return absl::UnavailableError(absl::StrCat("no trial has a result; ", page, " has the reasons"));
  ASSIGN_OR_RETURN(v1::Job job, trials.JobOf(result.halving.best));
  if (options.runs.plan.budget.samples > 0) job.set_samples(options.runs.plan.budget.samples);
  if (options.workers > 0) job.set_workers(options.workers);
  const std::string best_job = directory + "/best.textproto";
  RETURN_IF_ERROR(WriteFile(best_job, JobText(job)));
  *out << '\n'
       << AnswerOf(result) << "\n\njob     " << best_job << "\nreport  " << page << "\nfigures " << json
       << '\n'
       << std::flush;
  size_t failed = 0;
  for (const std::vector<RunResult>& rung : result.runs) {
    for (const RunResult& run : rung) failed += !run.directory.empty() && !run.done && !run.diverged;
  }
  if (failed == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      Plural(failed, "run"), " failed and were left out of the search; the same command repeats them"));
}

absl::StatusOr<int> RunTune(TuneOptions options, const Streams& streams) {
  SignalWaiter signals;
  std::optional<ProgramDescription> description;
  CompareOptions& plan = options.runs.plan;
  RETURN_IF_ERROR(CompareDirectory::Check(plan.out));
  ASSIGN_OR_RETURN(const v1::Job given, GivenJob(plan, &signals, &description));
  plan.workers = {options.workers > 0 ? options.workers : std::max(1, static_cast<int>(given.workers()))};
  RETURN_IF_ERROR(CheckFields(given, &options.over));
  RETURN_IF_ERROR(CheckStragglers(options.runs, plan.workers.front()));
  SlowDownJobs(&options.runs);
  const std::vector<Rung> rungs = PlanRungs(options.trials);
  Trials trials(options, given);
  RETURN_IF_ERROR(trials.Check(rungs.front().share));
  nlohmann::ordered_json record = CompareRecord(plan, given);
  record["over"] = options.over_texts;
  record["trials"] = options.trials;
  std::unique_ptr<Launcher> launcher;
  std::string simulated;
  if (options.simulate) {
    std::vector<PlannedRun> largest;
    for (int trial = 0; trial < options.trials; ++trial) {
      absl::StatusOr<PlannedRun> run = trials.Plan(trial, 0, 1);
      if (run.ok()) largest.push_back(*std::move(run));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<SimulationLauncher> simulation,
                     SimulationLauncher::Create(options.runs, given, largest));
    simulated = simulation->description();
    record["simulated"] = simulated;
    for (const StragglerModel& straggler : options.runs.stragglers)
      record["straggler"].push_back(straggler.text);
    launcher = std::move(simulation);
  } else {
    ASSIGN_OR_RETURN(launcher, MakeLauncher(plan, &signals));
  }
  if (plan.overwrite) {
    RETURN_IF_ERROR(CheckNoJobs(plan.out));
  }
  ASSIGN_OR_RETURN(const CompareDirectory directory,
                   CompareDirectory::Open(plan.out, plan.overwrite, record));
  const std::string weights = directory.initial_weights();
  if (description.has_value() && !std::filesystem::exists(weights)) {
    RETURN_IF_ERROR(description->CopyWeights(weights));
  }
  const Search search = {
      "", rungs, [&trials](int trial, int rung, double share) { return trials.Plan(trial, rung, share); }};
  int signal = 0;
  absl::StatusOr<std::vector<SearchResult>> found =
      RunSearches({search}, directory, launcher.get(), streams, &signal);
  if (signal != 0) {
    *streams.err << "catchment tune: interrupted; the same command continues with the missing runs\n";
    return kExitSignal + signal;
  }
  RETURN_IF_ERROR(found.status());
  TuneResult result;
  result.command = ReportedCommand("catchment tune", plan.args);
  result.job_name = given.name();
  result.budget = ToString(plan.budget);
  result.simulated = simulated;
  result.over = options.over;
  result.trials = trials.all();
  result.halving = std::move(found->front().halving);
  result.runs = std::move(found->front().runs);
  result.importance = ImportanceOf(result);
  RETURN_IF_ERROR(WriteResult(options, result, trials, directory.path(), streams.out));
  return 0;
}

}  // namespace

int RunTuneCommand(const std::vector<std::string>& args, const Streams& streams) {
  TuneOptions options;
  options.runs.plan.args = args;
  CommandLine line = TuneCommandLine(&options);
  return RunCommandLine(&line, args, streams.out, streams.err,
                        [&] { return RunTune(std::move(options), streams); });
}

}  // namespace catchment
