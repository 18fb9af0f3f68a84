#include "cli/simulate/simulate.h"

#include <algorithm>
#include <functional>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/base/run_directory.h"
#include "cli/compare/compare_directory.h"
#include "cli/compare/compare_plan.h"
#include "cli/compare/compare_runs.h"
#include "cli/compare/comparison_runs.h"
#include "cli/job/read_job.h"
#include "cli/local/train_monitor.h"
#include "cli/simulate/recorded_run.h"
#include "common/base/machine.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/task_pool.h"
#include "common/base/text.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"

namespace catchment {
namespace {

constexpr NetworkModel kDefaultNetwork = {.bytes_per_second = 1.25e9, .latency = 50e-6};
// The share of the free memory that workers may take.
constexpr double kMemoryShare = 0.8;
// The mean number of failures of a worker in a run for which nothing else determines a length.
constexpr double kFailuresPerWorker = 4;

// Describes the modelled cluster, for the report and the record of the directory.
std::string Describe(const SimulateOptions& options, const SimulationOptions& simulation) {
  const std::string step = simulation.step ? ToString(*simulation.step) : "of model.synthetic";
  std::string words = absl::StrCat("step ", step, ", start ", StartText(simulation.start), ", network ",
                                   ToString(simulation.network));
  if (!options.failures_text.empty()) absl::StrAppend(&words, ", failures ", options.failures_text);
  if (options.quadratic) absl::StrAppend(&words, ", gradient ", options.gradient);
  return words;
}

absl::StatusOr<Distribution> StartOf(const SimulateOptions& options, const Distribution& step) {
  if (options.start) return *options.start;
  if (options.from.empty()) return UsualStart(step);
  ASSIGN_OR_RETURN(const std::optional<Distribution> start, RecordedStart(options.from));
  return start.value_or(UsualStart(step));
}

absl::StatusOr<SimulationOptions> MakeOptions(const SimulateOptions& options, const v1::Job& given) {
  SimulationOptions simulation;
  simulation.servers = options.plan.servers;
  simulation.step = options.step;
  simulation.network = options.network.value_or(kDefaultNetwork);
  simulation.failures = options.failures;
  simulation.quadratic = options.quadratic;
  for (const StragglerModel& straggler : options.stragglers) {
    if (!straggler.of_steps) continue;
    simulation.slow_steps = straggler.share;
    simulation.slow_step_factor = straggler.times;
  }
  if (!options.from.empty() && !options.step) {
    ASSIGN_OR_RETURN(simulation.step, RecordedStep(options.from));
  }
  ASSIGN_OR_RETURN(const Distribution step, StepOf(given, simulation));
  ASSIGN_OR_RETURN(simulation.start, StartOf(options, step));
  if (!options.from.empty() && !options.network) {
    ASSIGN_OR_RETURN(simulation.network, RecordedNetwork(options.from));
  }
  return simulation;
}

// Reads the job, and gives *options the algorithm of the job if none is given.
absl::StatusOr<v1::Job> GivenJob(SimulateOptions* options) {
  ASSIGN_OR_RETURN(v1::Job job, LoadJob(options->plan.job));
  RETURN_IF_ERROR(ApplyOverrides(options->plan.set, &job));
  if (options->seed > 0) job.set_seed(options->seed);
  const std::string& preset = job.algorithm().preset();
  if (options->plan.algorithms.empty()) options->plan.algorithms = {preset.empty() ? "sync" : preset};
  return job;
}

// Gives runs that learn nothing the time in which workers fail: the budget of the job file is that of a short
// load test. --budget and --set have precedence.
absl::Status AllowForFailures(const v1::Job& given, SimulateOptions* options, std::ostream* out) {
  CompareBudget* const budget = &options->plan.budget;
  const FailureModel& failures = options->failures;
  v1::Job set;
  RETURN_IF_ERROR(ApplyOverrides(options->plan.set, &set));
  const bool is_chosen =
      budget->samples > 0 || budget->seconds > 0 || set.budget_case() != v1::Job::BUDGET_NOT_SET;
  if (is_chosen || failures.mean_seconds <= 0 || !given.model().has_synthetic()) return absl::OkStatus();
  budget->seconds = kFailuresPerWorker * (failures.mean_seconds + failures.away_seconds);
  *out << "each run has " << Short(budget->seconds) << " simulated seconds, in which a worker fails "
       << kFailuresPerWorker << " times on average; --budget changes it\n"
       << std::flush;
  return absl::OkStatus();
}

nlohmann::ordered_json RecordOf(const SimulateOptions& options, const v1::Job& given,
                                const std::string& description) {
  nlohmann::ordered_json record = CompareRecord(options.plan, given);
  record["simulated"] = description;
  for (const StragglerModel& straggler : options.stragglers) record["straggler"].push_back(straggler.text);
  return record;
}

// Returns the command line without the directory, so that the same simulation gives the same report in any
// directory.
std::string CommandOf(const std::vector<std::string>& args) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--out") {
      ++i;
    } else if (!absl::StartsWith(args[i], "--out=")) {
      kept.push_back(args[i]);
    }
  }
  return ReportedCommand("catchment simulate", kept);
}

Comparison Result(const SimulateOptions& options, const ComparisonRuns& runs,
                  const std::string& description) {
  Comparison comparison = runs.Result();
  comparison.command = CommandOf(options.plan.args);
  comparison.machine.reset();
  comparison.simulated = description;
  for (const StragglerModel& straggler : options.stragglers) comparison.stragglers.push_back(straggler.text);
  return comparison;
}

absl::StatusOr<int> RunSimulate(SimulateOptions options, const Streams& streams) {
  ASSIGN_OR_RETURN(const v1::Job given, GivenJob(&options));
  RETURN_IF_ERROR(AllowForFailures(given, &options, streams.out));
  SlowDownJobs(&options);
  ASSIGN_OR_RETURN(const ComparePlan plan, MakePlan(options.plan, given, {}));
  ASSIGN_OR_RETURN(const std::unique_ptr<SimulationLauncher> launcher,
                   SimulationLauncher::Create(options, given, plan.runs));
  const std::string& description = launcher->description();
  ASSIGN_OR_RETURN(const CompareDirectory directory,
                   CompareDirectory::Open(options.plan.out, options.plan.overwrite,
                                          RecordOf(options, given, description)));
  ComparisonRuns runs(options.plan, given, directory, launcher.get(), streams);
  RETURN_IF_ERROR(runs.Run());
  const Comparison comparison = Result(options, runs, description);
  RETURN_IF_ERROR(Conclude(comparison, directory.path(), streams.out));
  return 0;
}

}  // namespace

void SlowDownJobs(SimulateOptions* options) {
  options->plan.finish_job = [stragglers = options->stragglers](v1::Job* job) {
    for (const StragglerModel& straggler : stragglers) SetStragglers(straggler, job);
  };
}

absl::StatusOr<int> SimulationsAtOnce(const v1::Job& job, const SimulationOptions& options) {
  const auto memory = static_cast<double>(FreeMemory());
  ASSIGN_OR_RETURN(const int64_t fit, WorkersThatFit(job, options, kMemoryShare * memory));
  const int64_t workers = job.workers();
  if (workers > fit) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "--workers=%d: with this model %d workers fit into the %.1f GB of memory that are free; "
        "--gradient=quadratic:100:0.1 simulates more",
        workers, fit, memory / 1e9));
  }
  return static_cast<int>(std::min<int64_t>(AvailableProcessors(), fit / workers));
}

absl::StatusOr<std::unique_ptr<SimulationLauncher>> SimulationLauncher::Create(
    const SimulateOptions& options, const v1::Job& given, const std::vector<PlannedRun>& runs) {
  ASSIGN_OR_RETURN(SimulationOptions simulation, MakeOptions(options, given));
  int at_once = AvailableProcessors();
  for (const PlannedRun& run : runs) {
    ASSIGN_OR_RETURN(const int of_run, SimulationsAtOnce(run.job, simulation));
    at_once = std::min(at_once, of_run);
  }
  std::string description = Describe(options, simulation);
  return absl::WrapUnique(new SimulationLauncher(std::move(simulation), at_once, std::move(description)));
}

absl::Status SimulationLauncher::Launch(std::vector<PlannedRun> runs, const FollowingRuns& following,
                                        const CompareDirectory& directory, CompareProgress* progress,
                                        int* /*signal*/) {
  TaskPool pool;
  Mutex mu;  // guards `progress` and what `following` knows
  const std::function<void(std::vector<PlannedRun>)> add = [&](std::vector<PlannedRun> added) {
    for (PlannedRun& one : added) {
      pool.Add([&, run = std::move(one)]() -> absl::Status {
        ASSIGN_OR_RETURN(const RunDirectory prepared, PrepareRun(run, directory));
        const absl::Status status = Train(run, prepared);
        const MutexLock lock(&mu);
        progress->Begin(LabelOf(run));
        progress->End(status.ok() ? ResultLine(prepared.path()) : absl::StrCat("failed: ", status.message()));
        // An error of the job or its data is that of all runs.
        if (!status.ok() && !absl::IsInternal(status)) return status;
        add(following(run));
        return absl::OkStatus();
      });
    }
  };
  add(std::move(runs));
  return pool.Run(at_once_);
}

absl::Status SimulationLauncher::Train(const PlannedRun& run, const RunDirectory& directory) const {
  SimulationOptions options = simulation_;
  options.out_dir = directory.path();
  options.seconds = run.seconds;
  options.end_reason = TimeIsUp(run.seconds);
  return Simulate(run.job, options).status();
}

int RunSimulateCommand(const std::vector<std::string>& args, const Streams& streams) {
  SimulateOptions options;
  options.plan.args = args;
  CommandLine line = SimulateCommandLine(&options);
  return RunCommandLine(&line, args, streams.out, streams.err,
                        [&] { return RunSimulate(std::move(options), streams); });
}

}  // namespace catchment
