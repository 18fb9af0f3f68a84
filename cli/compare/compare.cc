#include "cli/compare/compare.h"

#include <signal.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/compare/compare_directory.h"
#include "cli/compare/compare_plan.h"
#include "cli/compare/compare_runs.h"
#include "cli/compare/comparison_runs.h"
#include "cli/compare/launcher.h"
#include "cli/compare/slurm_launcher.h"
#include "cli/job/read_job.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"

namespace catchment {
namespace {

// Returns CompareDirectory::initial_weights before the directory is opened.
std::string InitialWeights(const CompareOptions& options) {
  return std::filesystem::absolute(options.out + "/initial.safetensors").lexically_normal();
}

absl::Status PrintPlan(const CompareOptions& options, const v1::Job& given, std::ostream* out) {
  ASSIGN_OR_RETURN(const ComparePlan plan, MakePlan(options, given, {}));
  ASSIGN_OR_RETURN(const std::vector<PlannedSearch> searches, PlanSearches(options, given));
  for (const PlannedRun& run : plan.runs)
    *out << LabelOf(run) << ": " << ToString(HyperparametersOf(run.job)) << '\n';
  for (const LeftOut& one : plan.left_out) {
    *out << one.algorithm << ", " << Plural(one.workers, "worker") << ": left out: " << OneLine(one.reason)
         << '\n';
  }
  *out << Plural(plan.runs.size(), "run");
  if (!searches.empty()) {
    double cost = 0;
    for (const PlannedSearch& search : searches) cost += CostOf(search.rungs);
    *out << ", after searches for " << Plural(searches.size(), "learning rate")
         << ", which replace those above and cost as much as " << Plural(std::llround(cost), "more run");
  }
  *out << "; nothing was started\n";
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::Job> GivenJob(const CompareOptions& options, SignalWaiter* signals,
                                 std::optional<ProgramDescription>* description) {
  ASSIGN_OR_RETURN(v1::Job job, ReadJob(options.job, options.program, signals, description));
  if (description->has_value()) job.mutable_model()->set_initial_weights(InitialWeights(options));
  RETURN_IF_ERROR(ApplyOverrides(options.set, &job));
  if (!job.data().has_external() || job.data().external().test_samples() > 0) return job;
  return absl::InvalidArgumentError(
      "data.external.test_samples: is 0, "
      "but runs are compared by their test scores; pass a test set to join()");
}

absl::StatusOr<int> RunCompare(const CompareOptions& options, Launcher* launcher, SignalWaiter* signals,
                               const Streams& streams) {
  RETURN_IF_ERROR(CompareDirectory::Check(options.out));
  std::optional<ProgramDescription> description;
  ASSIGN_OR_RETURN(const v1::Job given, GivenJob(options, signals, &description));
  if (options.dry_run) {
    RETURN_IF_ERROR(PrintPlan(options, given, streams.out));
    return 0;
  }
  if (options.overwrite) RETURN_IF_ERROR(CheckNoJobs(options.out));
  ASSIGN_OR_RETURN(const CompareDirectory directory,
                   CompareDirectory::Open(options.out, options.overwrite, CompareRecord(options, given)));
  // All runs begin with the same weights, also those after an interruption of the command.
  const std::string weights = directory.initial_weights();
  if (description.has_value() && !std::filesystem::exists(weights))
    RETURN_IF_ERROR(description->CopyWeights(weights));
  ComparisonRuns runs(options, given, directory, launcher, streams);
  const absl::Status status = runs.Run();
  if (runs.signal() != 0) {
    *streams.err << "catchment compare: interrupted; the same command continues with the missing runs\n";
    return kExitSignal + runs.signal();
  }
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(Conclude(runs.Result(), directory.path(), streams.out));
  return 0;
}

int RunCompareCommand(const std::vector<std::string>& args, const Streams& streams) {
  CompareOptions options;
  options.args = args;
  CommandLine line = CompareCommandLine(&options);
  return RunCommandLine(&line, args, streams.out, streams.err, [&]() -> absl::StatusOr<int> {
    SignalWaiter signals;
    ASSIGN_OR_RETURN(const std::unique_ptr<Launcher> launcher, MakeLauncher(options, &signals));
    return RunCompare(options, launcher.get(), &signals, streams);
  });
}

}  // namespace catchment
