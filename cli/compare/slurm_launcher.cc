#include "cli/compare/slurm_launcher.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/run_directory.h"
#include "cli/compare/cluster_command.h"
#include "cli/local/local_cluster.h"
#include "cli/report/run_result.h"
#include "common/base/status_macros.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxSubmissions = 5;  // of one run by one command

absl::StatusOr<SlurmQueue> ReadQueue(const SlurmPrograms& programs, const std::string& directory) {
  ASSIGN_OR_RETURN(const std::string output, Execute(SqueueCommand(programs), directory + "/squeue.log"));
  return ParseQueue(output);
}

// Returns the number of the job that was last submitted for the run in this directory; empty if there is
// none.
std::string RecordedJob(const std::string& run_directory) {
  return ParseJobId(ReadTextFile(run_directory + kSbatchLog).value_or(""));
}

// Returns the state of a job; empty if Slurm does not know it.
std::string StateOf(const SlurmQueue& queue, const std::string& job) {
  const auto found = queue.find(job);
  return found == queue.end() ? "" : found->second;
}

bool IsActive(const SlurmQueue& queue, const std::string& job) {
  return !job.empty() && PhaseOf(StateOf(queue, job)) == SlurmPhase::kActive;
}

std::string DescribeFailure(const std::string& job, const std::string& state, const std::string& path) {
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(path + "/summary.json");
  const std::string phase = summary.ok() ? TextOrEmpty(*summary, "phase") : "";
  if (phase == "FAILED") return ResultLine(path);
  const bool stopped = state == "TIMEOUT" || phase == "STOPPED";
  const std::string log = path + kBatchLog;
  return absl::StrCat(
      "failed: Slurm job ", job, " ended as ", state.empty() ? "lost" : state,
      stopped ? " before its budget was spent; SBATCH_TIMELIMIT in the environment sets its time limit" : "",
      "; the last lines of ", log, ":", Quote(LastLines(ReadTextFile(log).value_or(""), kQuotedLines)));
}

absl::Status NotShared(const std::string& job, const std::string& state, const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat("Slurm job ", job, " ended as ", state, ", and left no ", path, kBatchLog,
                   ": the nodes of the cluster cannot access this directory; choose an --out on a file "
                   "system that this machine and all nodes share"));
}

absl::StatusOr<SlurmPrograms> FindPrograms() {
  SlurmPrograms programs;
  for (const auto& [name, path] :
       {std::pair("sbatch", &programs.sbatch), std::pair("squeue", &programs.squeue),
        std::pair("scancel", &programs.scancel)}) {
    *path = FindInPath(name);
    if (!path->empty()) continue;
    return absl::NotFoundError(absl::StrCat("--launcher=slurm: no ", name,
                                            " in PATH; run the command on a login node of the cluster, or "
                                            "leave out --launcher to train on this machine"));
  }
  ASSIGN_OR_RETURN(const std::string here, OwnDirectory());
  programs.script = (fs::path(here).parent_path() / "deploy/slurm/catchment.sbatch").string();
  if (fs::exists(programs.script)) return programs;
  return absl::NotFoundError(absl::StrCat(
      "--launcher=slurm: no ", programs.script,
      "; run the command from a bundle (deploy/bundle.sh) on a file system that all nodes can access"));
}

}  // namespace

absl::Status CheckNoJobs(const std::string& out) {
  std::vector<std::string> jobs;
  std::error_code error;
  for (const char* runs : {"/runs", "/search"}) {
    for (const fs::directory_entry& run : fs::directory_iterator(out + runs, error)) {
      if (std::string job = RecordedJob(run.path().string()); !job.empty()) jobs.push_back(std::move(job));
    }
  }
  SlurmPrograms programs;
  programs.squeue = FindInPath("squeue");
  if (jobs.empty() || programs.squeue.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const SlurmQueue queue, ReadQueue(programs, out));
  jobs.erase(
      std::remove_if(jobs.begin(), jobs.end(), [&](const std::string& job) { return !IsActive(queue, job); }),
      jobs.end());
  if (jobs.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("--overwrite: Slurm jobs that write to ", out,
                                                    " have not ended; cancel them with `scancel ",
                                                    absl::StrJoin(jobs, " "), "`, or choose another --out"));
}

absl::StatusOr<std::unique_ptr<Launcher>> SlurmLauncher::Create(const CompareOptions& options,
                                                                SignalWaiter* signals) {
  ASSIGN_OR_RETURN(SlurmPrograms programs, FindPrograms());
  return std::make_unique<SlurmLauncher>(options, std::move(programs), SlurmBounds(), signals);
}

absl::Status SlurmLauncher::Launch(std::vector<PlannedRun> runs, const FollowingRuns& following,
                                   const CompareDirectory& directory, CompareProgress* progress,
                                   int* signal) {
  progress_ = progress;
  following_ = &following;
  open_.clear();
  submit_ = true;
  ASSIGN_OR_RETURN(queue_, ReadQueue(programs_, directory.path()));
  for (PlannedRun& run : runs) {
    RETURN_IF_ERROR(Open(std::move(run), directory));
  }
  while (true) {
    RETURN_IF_ERROR(SubmitAll(directory));
    if (open_.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(queue_, AwaitQueue(directory, signal));
    RETURN_IF_ERROR(Update(directory));
  }
}

absl::Status SlurmLauncher::Open(PlannedRun run, const CompareDirectory& directory) {
  OpenRun& open = open_.emplace_back();
  open.path = fs::absolute(directory.PathOf(run)).lexically_normal().string();
  open.run = std::move(run);
  const std::string job = RecordedJob(open.path);
  if (!IsActive(queue_, job)) return absl::OkStatus();
  if (ReadTextFile(open.path + "/job.textproto").value_or("") != JobText(open.run.job)) {
    return absl::FailedPreconditionError(absl::StrCat("Slurm job ", job, " trains another job in ", open.path,
                                                      "; cancel it with `scancel ", job, "`"));
  }
  open.job = job;
  progress_->Note(absl::StrCat(LabelOf(open.run), ": is Slurm job ", job, " already"));
  return absl::OkStatus();
}

absl::Status SlurmLauncher::SubmitAll(const CompareDirectory& directory) {
  while (submit_) {
    submit_ = false;
    bool any = false;
    for (OpenRun& open : open_) {
      if (open.job.empty()) {
        RETURN_IF_ERROR(Submit(directory, &open));
      }
      any = any || !open.job.empty();
    }
    if (any) continue;
    // No run has a job whose end could make room for the others.
    std::vector<std::pair<OpenRun, std::string>> refused;
    for (OpenRun& open : std::exchange(open_, {})) {
      std::string result = absl::StrCat("failed: ", open.refusal);
      refused.emplace_back(std::move(open), std::move(result));
    }
    RETURN_IF_ERROR(EndAll(refused, directory));
    submit_ = !open_.empty();
  }
  return absl::OkStatus();
}

absl::Status SlurmLauncher::Submit(const CompareDirectory& directory, OpenRun* open) const {
  RETURN_IF_ERROR(PrepareRun(open->run, directory).status());
  ASSIGN_OR_RETURN(const SlurmLayout layout, LayOut(options_.slurm, open->run.workers));
  // The record of the job is what sbatch itself has written, so that it is there even if this command is
  // killed.
  const absl::StatusOr<std::string> output =
      Execute(SbatchCommand(programs_, options_, layout, open->run, open->path), open->path + kSbatchLog);
  open->job = output.ok() ? ParseJobId(*output) : "";
  if (open->job.empty()) {
    open->refusal = output.ok() ? absl::StrCat("sbatch printed no number of a job:",
                                               Quote(LastLines(*output, kQuotedLines)))
                                : std::string(output.status().message());
    return absl::OkStatus();
  }
  ++open->submissions;
  open->ended_at = -1;
  progress_->Note(absl::StrCat(LabelOf(open->run), ": submitted as Slurm job ", open->job));
  return absl::OkStatus();
}

absl::StatusOr<SlurmQueue> SlurmLauncher::AwaitQueue(const CompareDirectory& directory, int* signal) const {
  const double begin = clock_.Now();
  while (true) {
    *signal = AwaitRequestToEnd(bounds_.poll, clock_, signals_);
    if (*signal != 0) {
      progress_->Note(absl::StrCat("Slurm jobs ", Jobs(), " continue; `scancel ", Jobs(), "` cancels them"));
      return absl::AbortedError("interrupted");
    }
    absl::StatusOr<SlurmQueue> queue = ReadQueue(programs_, directory.path());
    if (queue.ok()) return queue;
    if (clock_.Now() - begin < bounds_.silence) continue;
    return absl::UnavailableError(absl::StrCat(queue.status().message(), "\nSlurm jobs ", Jobs(),
                                               " may continue; the same command waits for them"));
  }
}

absl::Status SlurmLauncher::Update(const CompareDirectory& directory) {
  std::vector<std::pair<OpenRun, std::string>> ended;
  absl::Status error;
  for (OpenRun& open : std::exchange(open_, {})) {
    if (open.job.empty()) {
      open_.push_back(std::move(open));
      continue;
    }
    std::string result;
    const absl::StatusOr<bool> has_ended = HasEnded(StateOf(queue_, open.job), &open, &result);
    error.Update(has_ended.status());
    submit_ = submit_ || has_ended.value_or(false) || open.job.empty();
    if (has_ended.value_or(false)) {
      ended.emplace_back(std::move(open), std::move(result));
    } else {
      open_.push_back(std::move(open));
    }
  }
  RETURN_IF_ERROR(EndAll(ended, directory));
  // The other jobs would fail in the same way.
  if (!error.ok()) CancelAll();
  return error;
}

absl::StatusOr<bool> SlurmLauncher::HasEnded(const std::string& state, OpenRun* open,
                                             std::string* result) const {
  const SlurmPhase phase = PhaseOf(state);
  if (phase == SlurmPhase::kActive) return false;
  if (OutcomeOf(open->run, open->path) != RunOutcome::kNone) {
    *result = ResultLine(open->path);
    return true;
  }
  if (phase == SlurmPhase::kLost && open->submissions < kMaxSubmissions) {
    progress_->Note(absl::StrCat(LabelOf(open->run), ": Slurm job ", open->job, " was lost (",
                                 state.empty() ? "Slurm does not know it" : state, ")"));
    open->job.clear();
    return false;
  }
  const bool has_log = fs::exists(open->path + kBatchLog);
  if (state == "COMPLETED" || (state == "FAILED" && !has_log)) {
    if (open->ended_at < 0) open->ended_at = clock_.Now();
    if (clock_.Now() - open->ended_at < bounds_.visible) return false;
    if (!has_log) return NotShared(open->job, state, open->path);
  }
  *result = DescribeFailure(open->job, state, open->path);
  return true;
}

absl::Status SlurmLauncher::EndAll(const std::vector<std::pair<OpenRun, std::string>>& ended,
                                   const CompareDirectory& directory) {
  for (const auto& [open, result] : ended) {
    progress_->Begin(LabelOf(open.run));
    progress_->End(result);
    DeleteCheckpoints(open.path);
    for (PlannedRun& run : (*following_)(open.run)) {
      RETURN_IF_ERROR(Open(std::move(run), directory));
    }
  }
  return absl::OkStatus();
}

void SlurmLauncher::CancelAll() const {
  std::vector<std::string> argv = {programs_.scancel};
  for (const OpenRun& open : open_) {
    if (!open.job.empty()) argv.push_back(open.job);
  }
  Execute(argv, open_.front().path + "/logs/scancel.log").status().IgnoreError();
}

std::string SlurmLauncher::Jobs() const {
  std::vector<std::string> jobs;
  for (const OpenRun& open : open_) {
    if (!open.job.empty()) jobs.push_back(open.job);
  }
  return absl::StrJoin(jobs, " ");
}

}  // namespace catchment
