#include "cli/train.h"

#include <unistd.h>

#include <iostream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/advice.h"
#include "cli/load.h"
#include "cli/program_description.h"
#include "cli/run_directory.h"
#include "cli/status_text.h"
#include "cli/train_run.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "common/text.h"

namespace catchment {
namespace {

constexpr int kFailed = 1;
constexpr int kUsageError = 2;
constexpr int kSignalBase = 128;

StartMode ModeOf(const TrainOptions& options) {
  return options.resume ? StartMode::kResume : options.overwrite ? StartMode::kOverwrite : StartMode::kFresh;
}

int Failure(const TrainStreams& streams, const absl::Status& status) {
  *streams.err << "catchment train: " << status.message() << '\n';
  return kFailed;
}

// A program without a test set has nothing for an evaluator.
bool HasEvaluations(const v1::Job& job) {
  return !job.data().has_external() || job.data().external().test_samples() > 0;
}

ClusterPlan PlanCluster(const TrainOptions& options, const DaemonPaths& daemons,
                        const RunDirectory& directory, const v1::Job& job) {
  ClusterPlan plan;
  plan.daemons = daemons;
  plan.job = directory.job();
  plan.out = directory.path();
  plan.checkpoints = directory.checkpoints();
  plan.servers = options.servers;
  plan.workers = options.workers > 0 ? options.workers : static_cast<int>(job.workers());
  plan.evaluator = options.evaluator && HasEvaluations(job);
  plan.threads = options.threads > 0 ? options.threads : ThreadsPerWorker(plan.workers);
  plan.device = options.device;
  plan.program = options.program;
  plan.resume = options.resume;
  plan.tls = options.tls;
  return plan;
}

std::string StartLine(const v1::Job& job, const ClusterPlan& plan) {
  return absl::StrCat(plan.resume ? "resuming " : "training ", job.name(), " with ", job.algorithm().preset(),
                      " on ", Plural(plan.servers, "server"), " and ", Plural(plan.workers, "worker"), " of ",
                      Plural(plan.threads, "thread"), "; logs are in ", plan.out, "/logs");
}

// What to do after a run that did not finish.
void TellHowToGoOn(const TrainOptions& options, const RunDirectory& directory, std::ostream* out) {
  if (directory.HasCheckpoint()) {
    *out << "To go on from the last checkpoint: " << ResumeCommand(options) << '\n';
  } else {
    *out << "No checkpoint was written, so there is none to go on from; logs are in " << directory.logs()
         << '\n';
  }
}

// Where the best weights are, and of which evaluation where that is not the best one; empty where there are
// none.
std::string BestWeights(const nlohmann::json& summary, const RunDirectory& directory) {
  const auto number = [&summary](const char* key) {
    return summary.contains(key) && summary[key].is_number() ? summary[key].get<uint64_t>() : 0;
  };
  const uint64_t kept = number("best_weights");
  if (kept == 0) return "";
  return absl::StrCat(directory.best_model(),
                      kept == number("best_evaluation") ? "" : absl::StrCat(", of evaluation ", kept));
}

int Report(const TrainOptions& options, const RunDirectory& directory, const TrainOutcome& outcome,
           const TrainStreams& streams) {
  const absl::StatusOr<std::string> text = ReadTextFile(directory.summary());
  if (!text.ok()) {
    Failure(streams,
            absl::UnavailableError(absl::StrCat("the master ended without writing ", directory.summary())));
    TellHowToGoOn(options, directory, streams.err);
    return kFailed;
  }
  if (options.json) {
    *streams.out << *text << (text->empty() || text->back() != '\n' ? "\n" : "") << std::flush;
  } else {
    const absl::StatusOr<nlohmann::json> summary = ParseSummary(*text, directory.summary());
    if (!summary.ok()) return Failure(streams, summary.status());
    const std::string workers = WorkerTable(*summary);
    *streams.out << '\n'
                 << SummaryTable(*summary, {{"weights", directory.model()},
                                            {"best weights", BestWeights(*summary, directory)},
                                            {"result", directory.summary()},
                                            {"measurements", directory.metrics()}})
                 << (workers.empty() ? "" : "\n") << workers;
    const std::vector<Warning> warnings = Advise(outcome.training);
    if (!warnings.empty()) *streams.out << '\n' << WarningsText(warnings);
    *streams.out << std::flush;
  }
  if (outcome.signal == 0) return 0;
  TellHowToGoOn(options, directory, options.json ? streams.err : streams.out);
  return kSignalBase + outcome.signal;
}

int RunInDirectory(const TrainOptions& options, const v1::Job& job, const DaemonPaths& daemons,
                   const RunDirectory& directory, const TrainBounds& bounds, SignalWaiter* signals,
                   const TrainStreams& streams) {
  const ClusterPlan plan = PlanCluster(options, daemons, directory, job);
  ProgressPrinter printer(options.json ? streams.err : streams.out, streams.columns);
  printer.Note(StartLine(job, plan));
  const absl::StatusOr<TrainOutcome> outcome = RunCluster(plan, bounds, signals, &printer);
  if (!outcome.ok()) {
    Failure(streams, outcome.status());
    return absl::IsAborted(outcome.status()) ? kSignalBase + SIGINT : kFailed;
  }
  if (outcome->status.ok()) return Report(options, directory, *outcome, streams);
  Failure(streams, outcome->status);
  TellHowToGoOn(options, directory, streams.err);
  return outcome->signal == 0 ? kFailed : kSignalBase + outcome->signal;
}

// Whether --resume asks a run that ended by itself for the very job that it has done.
bool NothingIsLeft(const TrainOptions& options, const v1::Job& job) {
  if (!options.resume) return false;
  const std::string summary_path = options.out + "/summary.json";
  const absl::StatusOr<std::string> text = ReadTextFile(summary_path);
  if (!text.ok()) return false;
  const absl::StatusOr<nlohmann::json> summary = ParseSummary(*text, summary_path);
  const absl::StatusOr<v1::Job> done = LoadCompleteJob(options.out + "/job.textproto", {}, 0);
  return summary.ok() && done.ok() && summary->value("phase", "") == "DONE" && JobText(*done) == JobText(job);
}

absl::Status CheckEvaluator(const TrainOptions& options, const v1::Job& job) {
  if (options.evaluator) return absl::OkStatus();
  if (job.optimizer().schedule().decay() == v1::Schedule::PLATEAU) {
    return absl::InvalidArgumentError(
        "--evaluator=false: optimizer.schedule.decay is PLATEAU, which follows the evaluator's test loss; "
        "leave --evaluator out, or set the decay to COSINE or STEP");
  }
  const std::string field = FollowsEvaluator(job.evaluation());
  if (field.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--evaluator=false: ", field,
                                                 " is set, which follows the evaluator's scores; leave "
                                                 "--evaluator out, or the field"));
}

std::string SourceOf(const TrainOptions& options) {
  if (!options.job.empty() || !options.resume) return options.job;
  return absl::StrCat(options.out, "/job.textproto");
}

}  // namespace

int RunTrain(const TrainOptions& options, const DaemonPaths& daemons, const TrainBounds& bounds,
             SignalWaiter* signals, const TrainStreams& streams) {
  // Before anything in the directory is touched. The run's own job is read into memory first.
  const std::string source = SourceOf(options);
  std::optional<ProgramDescription> description;
  absl::StatusOr<v1::Job> job = ReadJob(source, options.program, signals, &description);
  if (absl::IsAborted(job.status())) {
    Failure(streams, job.status());
    return kSignalBase + SIGINT;
  }
  if (absl::IsInternal(job.status())) return Failure(streams, job.status());
  if (job.ok()) job = CompleteJob(*std::move(job), options.set, options.workers);
  if (!job.ok()) {
    *streams.err << (source.empty() ? "the job" : source) << " is not valid:\n"
                 << job.status().message() << '\n';
    return kFailed;
  }
  if (absl::Status status = CheckEvaluator(options, *job); !status.ok()) return Failure(streams, status);
  if (NothingIsLeft(options, *job)) {
    *streams.err << options.out
                 << " holds the result of this very job, and nothing is left to train; give it more, "
                 << "such as --set epochs=10\n";
    return 0;
  }
  const absl::StatusOr<RunDirectory> directory = RunDirectory::Open(options.out, ModeOf(options));
  if (!directory.ok()) return Failure(streams, directory.status());
  absl::Status status;
  if (description.has_value()) status = description->KeepWeights(directory->initial_weights(), &*job);
  if (status.ok()) status = WriteFile(directory->job(), JobText(*job));
  if (!status.ok()) return Failure(streams, status);
  return RunInDirectory(options, *job, daemons, *directory, BoundsFor(options.program, bounds), signals,
                        streams);
}

int TrainMain(const std::vector<std::string>& args) {
  SignalWaiter signals;
  TrainStreams streams = {&std::cout, &std::cerr};
  const absl::StatusOr<TrainOptions> options = ParseTrainOptions(args);
  if (!options.ok()) {
    Failure(streams, options.status());
    return kUsageError;
  }
  if (options->help) {
    std::cout << TrainHelp();
    return 0;
  }
  streams.columns = TerminalColumns(options->json ? STDERR_FILENO : STDOUT_FILENO);
  const absl::StatusOr<DaemonPaths> daemons = FindOwnDaemons();
  if (!daemons.ok()) return Failure(streams, daemons.status());
  TrainBounds bounds;
  bounds.stall = options->stall_seconds;
  return RunTrain(*options, *daemons, bounds, &signals, streams);
}

}  // namespace catchment
