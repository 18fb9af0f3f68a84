#include "cli/compare/kubectl_launcher.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/base/run_directory.h"
#include "cli/base/temporary_directory.h"
#include "cli/compare/compare_runs.h"
#include "common/base/status_macros.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;

constexpr char kMaster[] = "catchment-server-0";
// Pods have up to two minutes to end (terminationGracePeriodSeconds), then volumes are deleted.
constexpr double kDeleteSeconds = 300;
// The files that are copied from a run's volume. The summary is last, because a run that has one counts as
// done.
constexpr const char* kResults[] = {"model.safetensors", "model-best.safetensors", "metrics.jsonl",
                                    "summary.json"};

// Returns the shell command that prints result=NAME for each of them that the volume has.
std::string ListResults() {
  return absl::StrCat("cd /out && for file in ", absl::StrJoin(kResults, " "),
                      "; do [ ! -e $file ] || echo result=$file; done");
}

// Returns those that the Pod has named. Its other lines, such as names of other files, are not used.
std::vector<std::string> ResultsIn(const std::string& output) {
  const std::vector<std::string> lines = absl::StrSplit(output, '\n');
  std::vector<std::string> results;
  for (const char* name : kResults) {
    if (std::find(lines.begin(), lines.end(), absl::StrCat("result=", name)) != lines.end())
      results.push_back(name);
  }
  return results;
}

std::string Absolute(const std::string& path) { return fs::absolute(path).lexically_normal().string(); }

std::string DeleteCommand(const std::string& path) {
  return absl::StrCat("kubectl delete -k ", ShellQuoted(path + kManifests));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Launcher>> KubectlLauncher::Create(const CompareOptions& options,
                                                                  SignalWaiter* signals) {
  std::string kubectl = FindInPath("kubectl");
  if (kubectl.empty()) {
    return absl::NotFoundError(
        "--launcher=kubectl: no kubectl in PATH; install it (Debian: kubernetes-client), or leave out "
        "--launcher to train on this machine");
  }
  return std::make_unique<KubectlLauncher>(options, std::move(kubectl),
                                           KubectlBounds{.stall = options.stall_seconds}, signals);
}

absl::Status KubectlLauncher::Launch(std::vector<PlannedRun> runs, const FollowingRuns& following,
                                     const CompareDirectory& directory, CompareProgress* progress,
                                     int* signal) {
  progress_ = progress;
  log_ = directory.path() + "/kubectl.log";
  ASSIGN_OR_RETURN(const std::string active, FindRun(Absolute(directory.path())));
  applied_.clear();
  const auto first = std::stable_partition(runs.begin(), runs.end(), [&](const PlannedRun& run) {
    const std::string path = Absolute(directory.PathOf(run));
    return path == active && ReadTextFile(path + kManifestJob).value_or("") == JobText(run.job);
  });
  if (first != runs.begin()) applied_ = active;
  return SequentialLauncher::Launch(std::move(runs), following, directory, progress, signal);
}

absl::StatusOr<std::string> KubectlLauncher::FindRun(const std::string& comparison) const {
  const absl::StatusOr<std::string> output =
      Kubectl({"get", "configmap", "catchment-job", "--ignore-not-found", "--output",
               R"(jsonpath={"run="}{.data.run}{"\n"})"});
  if (!output.ok()) {
    return absl::UnavailableError(absl::StrCat(
        output.status().message(),
        "\nkubectl's current cluster and namespace must be reachable (`kubectl config current-context`)"));
  }
  const std::optional<std::string> run = ValueOf("run", *output);
  if (!run.has_value()) return "";
  if (absl::StartsWith(*run, comparison + "/")) return *run;
  return absl::FailedPreconditionError(absl::StrCat(
      "kubectl's namespace has another job of Catchment (", run->empty() ? "not of a comparison" : *run,
      "); delete it with `", run->empty() ? "kubectl delete -f FILE" : DeleteCommand(*run),
      "`, or choose another namespace with `kubectl config set-context --current --namespace=NAME`"));
}

absl::Status KubectlLauncher::Train(const PlannedRun& run, const CompareDirectory& directory,
                                    CompareProgress* progress, int* signal) {
  const std::string path = Absolute(directory.PathOf(run));
  if (path == std::exchange(applied_, "")) {
    progress->Note(absl::StrCat(LabelOf(run), ": is already in the cluster"));
  } else {
    RETURN_IF_ERROR(Apply(run, directory, path));
  }
  ASSIGN_OR_RETURN(const std::string result, AwaitEnd(path, signal));
  progress->Begin(LabelOf(run));
  progress->End(result);
  return DeleteRun(path);
}

absl::Status KubectlLauncher::Apply(const PlannedRun& run, const CompareDirectory& directory,
                                    const std::string& path) const {
  RETURN_IF_ERROR(PrepareRun(run, directory).status());
  RETURN_IF_ERROR(WriteManifests(options_, run, path));
  // An earlier run whose command was killed before it had deleted all of it has the same names.
  RETURN_IF_ERROR(DeleteRun(path));
  RETURN_IF_ERROR(Kubectl({"apply", "-k", path + kManifests}).status());
  progress_->Note(absl::StrCat(LabelOf(run), ": applied; `kubectl get pods` shows its Pods"));
  return absl::OkStatus();
}

absl::StatusOr<std::string> KubectlLauncher::AwaitEnd(const std::string& path, int* signal) const {
  std::string progress;
  std::string uncollected;
  double since = clock_.Now();
  while (true) {
    *signal = AwaitRequestToEnd(bounds_.poll, clock_, signals_);
    if (*signal != 0) {
      progress_->Note(absl::StrCat("The run continues in the cluster; `", DeleteCommand(path), "` ends it"));
      return absl::AbortedError("interrupted");
    }
    const absl::StatusOr<std::string> output = InServer(kStateCommand);
    const std::optional<RunState> state = output.ok() ? ParseState(*output) : std::nullopt;
    if (state.has_value() && (state->phase == "DONE" || state->phase == "FAILED")) {
      const absl::Status collected = CollectResults(path);
      if (collected.ok()) return ResultLine(path);
      uncollected = absl::StrCat("; copying its results failed: ", collected.message());
    }
    if (state.has_value() && state->progress != progress) {
      progress = state->progress;
      since = clock_.Now();
    }
    if (WorkersFailed()) return DescribeFailure("the Job catchment-worker has failed", path);
    if (clock_.Now() - since < bounds_.stall) continue;
    return DescribeFailure(
        absl::StrCat("no progress for ", bounds_.stall, " s (--stall_seconds)", uncollected), path);
  }
}

bool KubectlLauncher::WorkersFailed() const {
  const absl::StatusOr<std::string> output =
      Kubectl({"get", "job", "catchment-worker", "--output",
               R"(jsonpath={"failed="}{.status.conditions[?(@.type=="Failed")].status}{"\n"})"});
  return output.ok() && ValueOf("failed", *output) == "True";
}

absl::Status KubectlLauncher::CollectResults(const std::string& path) const {
  ASSIGN_OR_RETURN(const std::string output, InServer(ListResults()));
  CollectLogs(path);
  // Others may write to the run's directory: kubectl would follow a link that they put there.
  ASSIGN_OR_RETURN(const TemporaryDirectory own, TemporaryDirectory::CreateIn(path, "catchment-results"));
  for (const std::string& file : ResultsIn(output)) {
    const std::string unfinished = absl::StrCat(own.path(), "/", file);
    RETURN_IF_ERROR(
        Kubectl({"cp", absl::StrCat(kMaster, ":/out/", file), unfinished, "--container=server"}).status());
    std::error_code error;
    if (!fs::is_regular_file(fs::symlink_status(unfinished, error))) {
      return absl::UnavailableError(absl::StrCat("/out/", file, " is not a regular file"));
    }
    fs::rename(unfinished, absl::StrCat(path, "/", file), error);
    if (error)
      return absl::UnavailableError(absl::StrCat("cannot write ", path, "/", file, ": ", error.message()));
  }
  return absl::OkStatus();
}

void KubectlLauncher::CollectLogs(const std::string& path) const {
  for (int i = 0; i < options_.servers; ++i) {
    Execute({kubectl_, "logs", absl::StrCat("catchment-server-", i)},
            absl::StrCat(path, "/logs/server-", i, ".log"))
        .status()
        .IgnoreError();
  }
  Execute(
      {kubectl_, "logs", "--selector=app.kubernetes.io/instance=catchment,app.kubernetes.io/component=worker",
       "--prefix", "--tail=-1"},
      path + "/logs/workers.log")
      .status()
      .IgnoreError();
}

std::string KubectlLauncher::DescribeFailure(const std::string& reason, const std::string& path) const {
  CollectLogs(path);
  const std::string log = path + "/logs/server-0.log";
  const absl::StatusOr<std::string> pods =
      Kubectl({"get", "pods", "--selector=app.kubernetes.io/instance=catchment"});
  return absl::StrCat(
      "failed: ", reason,
      "; its Pods:", Quote(LastLines(pods.ok() ? *pods : std::string(pods.status().message()), 100)),
      "\n  the last lines of ", log, ":", Quote(LastLines(ReadTextFile(log).value_or(""), kQuotedLines)));
}

absl::Status KubectlLauncher::DeleteRun(const std::string& path) const {
  return Kubectl({"delete", "-k", path + kManifests, "--ignore-not-found",
                  absl::StrCat("--timeout=", kDeleteSeconds, "s")},
                 kDeleteSeconds + kCommandSeconds)
      .status();
}

absl::StatusOr<std::string> KubectlLauncher::Kubectl(const std::vector<std::string>& args,
                                                     double seconds) const {
  std::vector<std::string> argv = {kubectl_};
  argv.insert(argv.end(), args.begin(), args.end());
  absl::StatusOr<std::string> output = Execute(argv, log_, seconds);
  if (output.ok()) return output;
  return absl::UnavailableError(absl::StrCat("kubectl ", args.front(), ": ", output.status().message()));
}

absl::StatusOr<std::string> KubectlLauncher::InServer(const std::string& command) const {
  return Kubectl({"exec", kMaster, "--container=server", "--", "sh", "-c", command});
}

}  // namespace catchment
