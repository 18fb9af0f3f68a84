#include "cli/local/train.h"

#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/base/run_directory.h"
#include "cli/job/job_facts.h"
#include "cli/job/read_job.h"
#include "cli/live/advice.h"
#include "cli/live/status_text.h"
#include "cli/local/train_monitor.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"

namespace catchment {
namespace {

// Returns true if the run is resumed. To be called after RunTrain has decided about kAuto.
bool Resumes(const TrainOptions& options) { return options.resume == AutoSwitch::kOn; }

StartMode ModeOf(const TrainOptions& options) {
  return Resumes(options)    ? StartMode::kResume
         : options.overwrite ? StartMode::kOverwrite
                             : StartMode::kFresh;
}

int Failure(const Streams& streams, const absl::Status& status) {
  *streams.err << Coloured{Colour::kRed, "catchment train: "} << status.message() << '\n';
  return kExitFailed;
}

// Returns false for a program without a test set, which an evaluator cannot score.
bool HasEvaluations(const v1::Job& job) {
  return !job.data().has_external() || job.data().external().test_samples() > 0;
}

int ServersOf(const TrainOptions& options, const v1::Job& job) {
  if (options.servers > 0) return options.servers;
  return job.faults().standby() > 0 ? 2 : 1;
}

ClusterPlan PlanCluster(const TrainOptions& options, const DaemonPaths& daemons,
                        const RunDirectory& directory, const v1::Job& job) {
  ClusterPlan plan;
  plan.daemons = daemons;
  plan.job = directory.job();
  plan.out = directory.path();
  plan.checkpoints = directory.checkpoints();
  plan.servers = ServersOf(options, job);
  plan.workers = options.workers > 0 ? options.workers : static_cast<int>(job.workers());
  plan.evaluator = options.evaluator && HasEvaluations(job);
  plan.evaluator_nice = options.evaluator_nice;
  plan.threads = options.threads > 0 ? options.threads : ThreadsPerWorker(plan.workers);
  plan.device = options.device;
  plan.program = options.program;
  plan.stage = options.stage;
  plan.trace = options.trace;
  plan.resume = Resumes(options);
  return plan;
}

std::string StartLine(const v1::Job& job, const ClusterPlan& plan) {
  return absl::StrCat(plan.resume ? "resuming " : "training ", job.name(), " with ", job.algorithm().preset(),
                      " on ", Plural(plan.servers, "server"), " and ", Plural(plan.workers, "worker"), " of ",
                      Plural(plan.threads, "thread"),
                      plan.program.empty() ? "" : absl::StrCat(" for `", plan.program, "`"), "; logs are in ",
                      plan.out, "/logs");
}

// Prints what to do after a run that did not finish.
void ExplainHowToResume(const TrainOptions& options, const RunDirectory& directory, std::ostream* out,
                        int columns) {
  if (directory.HasCheckpoint()) {
    const std::string text = absl::StrCat("To resume from the last checkpoint: ", ResumeCommand(options));
    *out << (columns > 0 ? WrapLines(text, columns, " \\") : text) << '\n';
  } else {
    *out << "No checkpoint was written, so the run cannot be resumed; logs are in " << directory.logs()
         << '\n';
  }
}

// Returns the file of the best weights and, if they are not those of the best evaluation, the evaluation that
// they are from; empty if there are none.
std::string BestWeights(const nlohmann::json& summary, const RunDirectory& directory) {
  const auto number = [&summary](const char* key) {
    return summary.contains(key) && summary[key].is_number() ? summary[key].get<uint64_t>() : 0;
  };
  const uint64_t kept = number("best_weights");
  if (kept == 0) return "";
  return absl::StrCat(directory.best_model(),
                      kept == number("best_evaluation") ? "" : absl::StrCat(", of evaluation ", kept));
}

void PrintMeasurements(const nlohmann::json& summary, const RunDirectory& directory, std::ostream* out) {
  const std::string workers = WorkerTable(summary);
  *out << SummaryTable(summary, {{"weights", directory.model()},
                                 {"best weights", BestWeights(summary, directory)},
                                 {"result", directory.summary()},
                                 {"measurements", directory.metrics()}})
       << (workers.empty() ? "" : "\n") << workers;
}

void PrintResult(const nlohmann::json& summary, const RunDirectory& directory, std::ostream* out) {
  const std::string best = BestWeights(summary, directory);
  const std::string table = ResultTable(summary, {{"best weights", best}, {"weights", directory.model()}});
  const std::string phase = summary.value("phase", "");
  const Colour colour = phase == "DONE" ? Colour::kGreen : Colour::kYellow;
  for (absl::string_view line : absl::StrSplit(absl::StripSuffix(table, "\n"), '\n')) {
    const bool is_score = absl::ConsumePrefix(&line, "  test ");
    if (is_score || absl::ConsumePrefix(&line, "  outcome ")) {
      *out << "  "
           << Coloured{is_score ? Colour::kBold : colour, absl::StrCat(is_score ? "test " : "outcome ", line)}
           << '\n';
    } else {
      *out << line << '\n';
    }
  }
}

// Prints the result as text.
void PrintReport(const TrainOptions& options, const nlohmann::json& summary, const RunDirectory& directory,
                 const TrainOutcome& outcome, const Streams& streams) {
  std::ostream* const out = streams.out;
  *out << '\n';
  (options.verbose ? PrintMeasurements : PrintResult)(summary, directory, out);
  const std::vector<Warning> warnings = Advise(outcome.training);
  if (!warnings.empty()) *out << '\n' << WarningsText(warnings, streams.out_size().columns);
}

// Returns the error of a job that has its results. `names`: TrainOutcome::failed.
absl::Status FailedPrograms(const std::set<std::string>& names, const RunDirectory& directory) {
  std::vector<std::string> parts;
  for (const std::string& name : names) {
    parts.push_back(name == "evaluator"
                        ? "the evaluator failed, so scores may be missing"
                        : absl::StrCat("the program of ", name, " failed after its last step"));
  }
  return absl::InternalError(absl::StrCat("the job's results are kept, but ", absl::StrJoin(parts, ", and "),
                                          "; logs are in ", directory.logs()));
}

int Report(const TrainOptions& options, const RunDirectory& directory, const TrainOutcome& outcome,
           const Streams& streams) {
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(directory.summary());
  if (!summary.ok()) {
    Failure(streams, absl::UnavailableError(absl::StrCat("the master ended without writing a summary: ",
                                                         summary.status().message())));
    ExplainHowToResume(options, directory, streams.err, streams.err_size().columns);
    return kExitFailed;
  }
  if (options.json) {
    const std::string text = ReadTextFile(directory.summary()).value_or("");
    *streams.out << text << (absl::EndsWith(text, "\n") ? "" : "\n") << std::flush;
  } else {
    PrintReport(options, *summary, directory, outcome, streams);
    *streams.out << std::flush;
  }
  if (!outcome.failed.empty()) Failure(streams, FailedPrograms(outcome.failed, directory));
  if (outcome.signal == 0) return outcome.failed.empty() ? 0 : kExitFailed;
  ExplainHowToResume(options, directory, options.json ? streams.err : streams.out,
                     (options.json ? streams.err_size : streams.out_size)().columns);
  return kExitSignal + outcome.signal;
}

// Writes lines of JSON for a program.
class DoorObserver final : public TrainObserver {
 public:
  explicit DoorObserver(std::ostream* out) : out_(*out) {}
  void Update(const v1::JobStatus& status) override { Write({{"progress", ProgressLine(status)}}); }
  void Note(const std::string& text) override { Write({{"note", text}}); }
  void Clear() override {}
  void End(absl::string_view error, int signal) { Write({{"error", error}, {"signal", signal}}); }

 private:
  void Write(const nlohmann::ordered_json& more) {
    nlohmann::ordered_json line = {{"version", 1}};
    line.update(more);
    out_ << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  }

  std::ostream& out_;
};

// Trains with lines for a program, and returns the exit code.
int RunForDoor(const ClusterPlan& plan, const TrainBounds& bounds, SignalWaiter* signals, std::ostream* out) {
  DoorObserver observer(out);
  const absl::StatusOr<TrainOutcome> outcome = RunCluster(plan, bounds, signals, &observer);
  const absl::Status& status = outcome.ok() ? outcome->status : outcome.status();
  const int signal = outcome.ok() ? outcome->signal : absl::IsAborted(status) ? SIGINT : 0;
  observer.End(status.message(), signal);
  if (signal != 0) return kExitSignal + signal;
  return status.ok() && outcome->failed.empty() ? 0 : kExitFailed;
}

int RunInDirectory(const TrainOptions& options, const v1::Job& job, const DaemonPaths& daemons,
                   const RunDirectory& directory, const TrainBounds& bounds, SignalWaiter* signals,
                   const Streams& streams) {
  const ClusterPlan plan = PlanCluster(options, daemons, directory, job);
  if (options.door) return RunForDoor(plan, bounds, signals, streams.out);
  ProgressPrinter printer(options.json ? streams.err : streams.out,
                          options.json ? streams.err_size : streams.out_size);
  printer.Note(StartLine(job, plan));
  for (const Warning& warning : AdviseJob(job)) {
    printer.Warn(absl::StrCat("warning ", warning.code, ": ", warning.found, ". ", warning.advice));
  }
  if (const auto facts = JobFacts::Create(job, plan.servers); facts.ok()) {
    for (const std::string& sentence : DescribeShortages(*facts, directory.path())) printer.Warn(sentence);
  }
  const absl::StatusOr<TrainOutcome> outcome = RunCluster(plan, bounds, signals, &printer);
  if (!outcome.ok()) {
    Failure(streams, outcome.status());
    return absl::IsAborted(outcome.status()) ? kExitSignal + SIGINT : kExitFailed;
  }
  if (outcome->status.ok()) return Report(options, directory, *outcome, streams);
  // A resumed run that has not trained would end in the same way again.
  const bool helps = !Resumes(options) || outcome->training.phase() == v1::JobStatus::TRAINING;
  if (helps) ExplainHowToResume(options, directory, streams.err, streams.err_size().columns);
  Failure(streams, outcome->status);
  return outcome->signal == 0 ? kExitFailed : kExitSignal + outcome->signal;
}

// Returns true if --resume is given for a run that is done, with the same job.
bool IsDone(const TrainOptions& options, const v1::Job& job) {
  if (!Resumes(options)) return false;
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(options.out + "/summary.json");
  const absl::StatusOr<v1::Job> done = LoadCompleteJob(options.out + "/job.textproto", {}, 0);
  return summary.ok() && done.ok() && summary->value("phase", "") == "DONE" && JobText(*done) == JobText(job);
}

absl::Status CheckEvaluator(const TrainOptions& options, const v1::Job& job) {
  if (options.evaluator) return absl::OkStatus();
  if (job.optimizer().schedule().decay() == v1::Schedule::PLATEAU) {
    return absl::InvalidArgumentError(
        "--evaluator=false: optimizer.schedule.decay is PLATEAU, which depends on the evaluator's test loss; "
        "omit --evaluator, or set the decay to COSINE or STEP");
  }
  const std::string field = FollowsEvaluator(job.evaluation());
  if (field.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--evaluator=false: ", field,
                                                 " is set, which depends on the evaluator's "
                                                 "scores; omit --evaluator or the field"));
}

std::string SourceOf(const TrainOptions& options) {
  if (!options.job.empty() || !Resumes(options)) return options.job;
  return absl::StrCat(options.out, "/job.textproto");
}

// Returns an error if the run would replace the user's job file by one with all defaults.
absl::Status CheckKeepsJob(const TrainOptions& options, const v1::Job& job) {
  const std::string own = options.out + "/job.textproto";
  std::error_code error;
  if (options.job.empty() || !std::filesystem::equivalent(options.job, own, error)) return absl::OkStatus();
  if (ReadTextFile(own).value_or("") == JobText(job)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      options.job, " is the job file of the run in ", options.out,
      ", which would be replaced by one with all changes and defaults: ",
      Resumes(options) ? "leave JOB out to resume the run" : "copy it, or choose another --out"));
}

// Finds the command of a program's model: that of --program, or of the run that is resumed.
absl::Status FindProgram(const v1::Job& job, TrainOptions* options) {
  if (!job.model().has_external() || !options->program.empty()) return absl::OkStatus();
  if (Resumes(*options)) options->program = ReadProgram(options->out);
  if (!options->program.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the model of the job is that of a program (model.external), and ",
      Resumes(*options) ? absl::StrCat(options->out, " has no record of its command") : "none is given",
      ": add --program=COMMAND, such as --program=\"python train.py\""));
}

absl::Status CheckResumed(const TrainOptions& options) {
  std::error_code error;
  if (!Resumes(options) || !options.job.empty() || std::filesystem::exists(SourceOf(options), error)) {
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("--resume: there is no run in ", options.out, " (no file ",
                                          SourceOf(options),
                                          "); start one with: catchment train JOB --out=", options.out));
}

}  // namespace

absl::StatusOr<int> RunTrain(const TrainOptions& given, const DaemonPaths& daemons, const TrainBounds& bounds,
                             SignalWaiter* signals, const Streams& streams) {
  TrainOptions options = given;
  if (options.resume == AutoSwitch::kAuto)
    options.resume = HasCheckpoint(options.out) ? AutoSwitch::kOn : AutoSwitch::kOff;
  // Nothing has changed, and no program has been started, when a directory is refused.
  RETURN_IF_ERROR(CheckRunDirectory(options.out));
  // Reads the job before it changes anything in the directory, which may contain the job.
  RETURN_IF_ERROR(CheckResumed(options));
  const std::string source = SourceOf(options);
  std::optional<ProgramDescription> description;
  absl::StatusOr<v1::Job> job = ReadJob(source, options.program, signals, &description);
  if (absl::IsAborted(job.status())) {
    Failure(streams, job.status());
    return kExitSignal + SIGINT;
  }
  if (absl::IsInternal(job.status())) return job.status();
  if (options.no_shared_memory) options.set.push_back("shared_memory=false");
  if (job.ok()) job = CompleteJob(*std::move(job), options.set, options.workers);
  // The daemons would refuse a model that cannot be split.
  const auto facts = job.ok() ? JobFacts::Create(*job, ServersOf(options, *job)) : job.status();
  if (!facts.ok()) return PrintInvalid(source, facts.status(), streams.err);
  RETURN_IF_ERROR(FindProgram(*job, &options));
  RETURN_IF_ERROR(CheckEvaluator(options, *job));
  RETURN_IF_ERROR(CheckKeepsJob(options, *job));
  if (IsDone(options, *job)) {
    *streams.err << options.out
                 << " contains the result of this finished job; to train longer, increase its budget, for "
                 << "example with --set epochs=10\n";
    return 0;
  }
  ASSIGN_OR_RETURN(const RunDirectory directory, RunDirectory::Open(options.out, ModeOf(options)));
  if (description.has_value()) RETURN_IF_ERROR(description->KeepWeights(directory.initial_weights(), &*job));
  RETURN_IF_ERROR(directory.WriteJob(*job));
  if (!options.program.empty()) RETURN_IF_ERROR(WriteFile(directory.program(), options.program + "\n"));
  return RunInDirectory(options, *job, daemons, directory, BoundsFor(options.program, bounds), signals,
                        streams);
}

namespace {

// Returns the exit code of a run, whose errors become the last line for a program.
template <typename Run>
int RunToDoor(const Streams& streams, const Run& run) {
  std::ostringstream said;
  const absl::StatusOr<int> code = run(Streams{streams.out, &said});
  if (!code.ok()) {
    DoorObserver(streams.out).End(code.status().message(), 0);
  } else if (!said.str().empty()) {
    DoorObserver(streams.out).End(absl::StripSuffix(said.str(), "\n"), 0);
  }
  return code.value_or(kExitFailed);
}

}  // namespace

int RunTrainCommand(const std::vector<std::string>& args, const Streams& streams) {
  TrainOptions options;
  options.args = args;
  CommandLine line = TrainCommandLine(&options);
  return RunCommandLine(&line, args, streams.out, streams.err, [&]() -> absl::StatusOr<int> {
    SignalWaiter signals;
    const TrainBounds bounds = {.stall = options.stall_seconds, .train = options.seconds};
    const auto run = [&](const Streams& to) -> absl::StatusOr<int> {
      ASSIGN_OR_RETURN(const DaemonPaths daemons, FindOwnDaemons());
      return RunTrain(options, daemons, bounds, &signals, to);
    };
    return options.door ? RunToDoor(streams, run) : run(streams);
  });
}

}  // namespace catchment
