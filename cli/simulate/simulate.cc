#include "cli/simulate/simulate.h"

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/compare/compare_directory.h"
#include "cli/compare/compare_plan.h"
#include "cli/compare/compare_runs.h"
#include "cli/compare/comparison_runs.h"
#include "cli/job/read_job.h"
#include "cli/local/run_directory.h"
#include "cli/local/train_monitor.h"
#include "cli/simulate/recorded_run.h"
#include "common/base/memory.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"

namespace catchment {
namespace {

constexpr NetworkModel kDefaultNetwork = {.bytes_per_second = 1.25e9, .latency = 50e-6};
// The share of the free memory that workers may take.
constexpr double kMemoryShare = 0.8;

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
  const absl::StatusOr<std::optional<Distribution>> start = RecordedStart(options.from);
  if (!start.ok()) return start.status();
  return start->value_or(UsualStart(step));
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
    const absl::StatusOr<Distribution> step = RecordedStep(options.from);
    if (!step.ok()) return step.status();
    simulation.step = *step;
  }
  const absl::StatusOr<Distribution> step = StepOf(given, simulation);
  if (!step.ok()) return step.status();
  const absl::StatusOr<Distribution> start = StartOf(options, *step);
  if (!start.ok()) return start.status();
  simulation.start = *start;
  if (!options.from.empty() && !options.network) {
    const absl::StatusOr<NetworkModel> network = RecordedNetwork(options.from);
    if (!network.ok()) return network.status();
    simulation.network = *network;
  }
  return simulation;
}

// Reads the job, and gives *options the algorithm of the job if none is given.
absl::StatusOr<v1::Job> GivenJob(SimulateOptions* options) {
  absl::StatusOr<v1::Job> job = LoadJob(options->plan.job);
  if (!job.ok()) return job;
  if (absl::Status status = ApplyOverrides(options->plan.set, &*job); !status.ok()) return status;
  if (options->seed > 0) job->set_seed(options->seed);
  const std::string& preset = job->algorithm().preset();
  if (options->plan.algorithms.empty()) options->plan.algorithms = {preset.empty() ? "sync" : preset};
  return job;
}

absl::Status CheckMemory(const std::vector<PlannedRun>& runs, const SimulationOptions& simulation) {
  const auto memory = static_cast<double>(FreeMemory());
  for (const PlannedRun& run : runs) {
    const absl::StatusOr<int64_t> fit = WorkersThatFit(run.job, simulation, kMemoryShare * memory);
    if (!fit.ok()) return fit.status();
    if (run.workers <= *fit) continue;
    return absl::ResourceExhaustedError(absl::StrFormat(
        "--workers=%d: with this model %d workers fit into the %.1f GB of memory that are free; "
        "--gradient=quadratic:100:0.1 simulates more",
        run.workers, *fit, memory / 1e9));
  }
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
  const absl::StatusOr<v1::Job> given = GivenJob(&options);
  if (!given.ok()) return given.status();
  SlowDownJobs(&options);
  const absl::StatusOr<ComparePlan> plan = MakePlan(options.plan, *given, {});
  if (!plan.ok()) return plan.status();
  const absl::StatusOr<std::unique_ptr<SimulationLauncher>> launcher =
      SimulationLauncher::Create(options, *given, plan->runs);
  if (!launcher.ok()) return launcher.status();
  const std::string& description = (*launcher)->description();
  const absl::StatusOr<CompareDirectory> directory = CompareDirectory::Open(
      options.plan.out, options.plan.overwrite, RecordOf(options, *given, description));
  if (!directory.ok()) return directory.status();
  ComparisonRuns runs(options.plan, *given, *directory, launcher->get(), streams);
  if (absl::Status status = runs.Run(); !status.ok()) return status;
  const Comparison comparison = Result(options, runs, description);
  if (absl::Status status = Conclude(comparison, directory->path(), streams.out); !status.ok()) return status;
  return 0;
}

}  // namespace

void SlowDownJobs(SimulateOptions* options) {
  options->plan.finish_job = [stragglers = options->stragglers](v1::Job* job) {
    for (const StragglerModel& straggler : stragglers) SetStragglers(straggler, job);
  };
}

absl::StatusOr<std::unique_ptr<SimulationLauncher>> SimulationLauncher::Create(
    const SimulateOptions& options, const v1::Job& given, const std::vector<PlannedRun>& runs) {
  absl::StatusOr<SimulationOptions> simulation = MakeOptions(options, given);
  if (!simulation.ok()) return simulation.status();
  if (absl::Status status = CheckMemory(runs, *simulation); !status.ok()) return status;
  std::string description = Describe(options, *simulation);
  return absl::WrapUnique(new SimulationLauncher(*std::move(simulation), std::move(description)));
}

absl::Status SimulationLauncher::Train(const PlannedRun& run, const CompareDirectory& comparison,
                                       CompareProgress* progress, int* /*signal*/) {
  const absl::StatusOr<RunDirectory> directory = PrepareRun(run, comparison);
  if (!directory.ok()) return directory.status();
  SimulationOptions options = simulation_;
  options.out_dir = directory->path();
  options.seconds = run.seconds;
  options.end_reason = TimeIsUp(run.seconds);
  progress->Begin(LabelOf(run));
  const absl::Status status = Simulate(run.job, options).status();
  progress->End(status.ok() ? ResultLine(directory->path()) : absl::StrCat("failed: ", status.message()));
  // An error of the job or its data is that of all runs.
  return absl::IsInternal(status) ? absl::OkStatus() : status;
}

int RunSimulateCommand(const std::vector<std::string>& args, const Streams& streams) {
  SimulateOptions options;
  options.plan.args = args;
  CommandLine line = SimulateCommandLine(&options);
  return RunCommandLine(&line, args, streams.out, streams.err,
                        [&] { return RunSimulate(std::move(options), streams); });
}

}  // namespace catchment
