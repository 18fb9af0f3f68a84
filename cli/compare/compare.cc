#include "cli/compare/compare.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/compare/compare_directory.h"
#include "cli/compare/compare_plan.h"
#include "cli/compare/compare_runs.h"
#include "cli/program_description.h"
#include "cli/progress.h"
#include "cli/report/answer.h"
#include "cli/report/findings.h"
#include "cli/report/report.h"
#include "cli/run_directory.h"
#include "cli/train_run.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"

namespace catchment {
namespace {

constexpr int kFailed = 1;
constexpr int kUsageError = 2;
constexpr int kSignalBase = 128;

int Failure(const CompareStreams& streams, const absl::Status& status) {
  *streams.err << "catchment compare: " << status.message() << '\n';
  return kFailed;
}

// One comparison, from the plan to the report.
class Comparing {
 public:
  Comparing(const CompareOptions& options, const v1::Job& given, const CompareRunner& runner)
      : options_(options), given_(given), runner_(runner) {}

  absl::Status Run() {
    // Before the first run: what is wrong with the last one's job is better said now.
    if (const auto plan = MakePlan(options_, given_, {}); !plan.ok()) return plan.status();
    for (const std::string& algorithm : options_.algorithms) {
      if (!options_.search) break;
      if (absl::Status status = Search(algorithm); !status.ok()) return status;
    }
    absl::StatusOr<ComparePlan> plan = MakePlan(options_, given_, found_);
    if (!plan.ok()) return plan.status();
    plan_ = *std::move(plan);
    return runner_.RunMissing(plan_.runs, &signal_);
  }

  Comparison Result() const {
    Comparison comparison = Collect(options_, runner_.directory, plan_, found_);
    comparison.probes = probes_;
    return comparison;
  }

  int signal() const { return signal_; }

 private:
  absl::Status Search(const std::string& algorithm) {
    const absl::StatusOr<std::vector<PlannedRun>> probes = PlanSearch(options_, given_, algorithm);
    if (!probes.ok()) return probes.status();
    if (absl::Status status = runner_.RunMissing(*probes, &signal_); !status.ok()) return status;
    std::vector<RunResult> results;
    for (const PlannedRun& probe : *probes) results.push_back(CollectRun(runner_.directory, probe));
    const int best = BestProbe(results);
    for (size_t i = 0; i < results.size(); ++i) {
      probes_.push_back({algorithm, ToString(HyperparametersOf((*probes)[i].job)), results[i].accuracy,
                         results[i].loss, static_cast<int>(i) == best});
    }
    if (best >= 0) found_[algorithm] = HyperparametersOf((*probes)[best].job);
    return absl::OkStatus();
  }

  const CompareOptions& options_;
  const v1::Job& given_;
  const CompareRunner& runner_;
  FoundHyperparameters found_;
  std::vector<SearchProbe> probes_;
  ComparePlan plan_;
  int signal_ = 0;
};

absl::Status WriteReport(const Comparison& comparison, const Findings& findings,
                         const CompareDirectory& directory) {
  absl::Status status = WriteFile(directory.report_json(), ReportJson(comparison, findings).dump(2) + "\n");
  status.Update(WriteFile(directory.report_html(), ReportPage(comparison, findings)));
  return status;
}

int Report(const Comparison& comparison, const CompareDirectory& directory, const CompareStreams& streams) {
  const auto done = std::count_if(comparison.runs.begin(), comparison.runs.end(),
                                  [](const RunResult& run) { return run.done; });
  if (done == 0)
    return Failure(streams, absl::UnavailableError("no run ended as it should: there is nothing to report"));
  const Findings findings = Find(comparison);
  if (absl::Status status = WriteReport(comparison, findings, directory); !status.ok())
    return Failure(streams, status);
  *streams.out << '\n'
               << Answer(comparison, findings) << '\n'
               << WhereSynchronousWins(findings) << "\n\n"
               << "report  " << directory.report_html() << "\nfigures " << directory.report_json() << '\n'
               << std::flush;
  if (done == static_cast<int64_t>(comparison.runs.size())) return 0;
  return Failure(streams,
                 absl::UnavailableError(absl::StrCat(
                     comparison.runs.size() - done, " of ", comparison.runs.size(),
                     " runs failed, and the report is without them; the same command runs them again")));
}

// CompareDirectory::initial_weights of the directory that is not open yet.
std::string InitialWeights(const CompareOptions& options) {
  return std::filesystem::absolute(options.out + "/initial.safetensors").lexically_normal();
}

// Returns the job as the file, or the program, and the overrides have it.
absl::StatusOr<v1::Job> GivenJob(const CompareOptions& options, SignalWaiter* signals,
                                 std::optional<ProgramDescription>* description) {
  absl::StatusOr<v1::Job> job = ReadJob(options.job, options.program, signals, description);
  if (!job.ok()) return job;
  if (description->has_value()) job->mutable_model()->set_initial_weights(InitialWeights(options));
  if (absl::Status status = ApplyOverrides(options.set, &*job); !status.ok()) return status;
  if (!job->data().has_external() || job->data().external().test_samples() > 0) return job;
  return absl::InvalidArgumentError(
      "data.external.test_samples: is 0; runs are compared by the test set's scores: give join() a test set");
}

}  // namespace

int RunCompare(const CompareOptions& options, const DaemonPaths& daemons, const TrainBounds& bounds,
               SignalWaiter* signals, const CompareStreams& streams) {
  std::optional<ProgramDescription> description;
  const absl::StatusOr<v1::Job> given = GivenJob(options, signals, &description);
  if (!given.ok()) return Failure(streams, given.status());
  const absl::StatusOr<CompareDirectory> directory =
      CompareDirectory::Open(options.out, options.overwrite, CompareRecord(options, *given));
  if (!directory.ok()) return Failure(streams, directory.status());
  // All runs begin with the same weights, also those after an interruption.
  const std::string weights = directory->initial_weights();
  if (description.has_value() && !std::filesystem::exists(weights)) {
    if (absl::Status status = description->CopyWeights(weights); !status.ok())
      return Failure(streams, status);
  }
  const CompareRunner runner{options,        daemons, BoundsFor(options.program, bounds),
                             *directory,     signals, streams.out,
                             streams.columns};
  Comparing comparing(options, *given, runner);
  const absl::Status status = comparing.Run();
  if (comparing.signal() != 0) {
    *streams.err << "catchment compare: interrupted; the same command goes on with what is missing\n";
    return kSignalBase + comparing.signal();
  }
  if (!status.ok()) return Failure(streams, status);
  return Report(comparing.Result(), *directory, streams);
}

int CompareMain(const std::vector<std::string>& args) {
  SignalWaiter signals;
  const CompareStreams streams = {&std::cout, &std::cerr, TerminalColumns(STDOUT_FILENO)};
  const absl::StatusOr<CompareOptions> options = ParseCompareOptions(args);
  if (!options.ok()) {
    Failure(streams, options.status());
    return kUsageError;
  }
  if (options->help) {
    std::cout << CompareHelp();
    return 0;
  }
  const absl::StatusOr<DaemonPaths> daemons = FindOwnDaemons();
  if (!daemons.ok()) return Failure(streams, daemons.status());
  TrainBounds bounds;
  bounds.stall = options->stall_seconds;
  return RunCompare(*options, *daemons, bounds, &signals, streams);
}

}  // namespace catchment
