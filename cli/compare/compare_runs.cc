#include "cli/compare/compare_runs.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/run_directory.h"
#include "cli/train_monitor.h"
#include "common/clock.h"
#include "common/job/job_text.h"
#include "common/text.h"

namespace catchment {
namespace {

ClusterPlan PlanCluster(const CompareRunner& runner, const PlannedRun& run, const RunDirectory& directory) {
  ClusterPlan plan;
  plan.daemons = runner.daemons;
  plan.job = directory.job();
  plan.out = directory.path();
  plan.checkpoints = directory.checkpoints();
  plan.servers = runner.options.servers;
  plan.workers = run.workers;
  // A comparison depends on the scores, which must not be delayed if workers use all processors.
  plan.evaluator_nice = 0;
  plan.threads = runner.options.threads;
  plan.device = runner.options.device;
  plan.program = runner.options.program;
  return plan;
}

// Carries out one run. Returns an error only if the remaining runs cannot be carried out; reports an error of
// this run to `progress`.
absl::Status RunOne(const CompareRunner& runner, const PlannedRun& run, CompareProgress* progress,
                    int* signal) {
  const absl::StatusOr<RunDirectory> directory =
      RunDirectory::Open(runner.directory.PathOf(run), StartMode::kOverwrite);
  if (!directory.ok()) return directory.status();
  if (absl::Status status = WriteFile(directory->job(), JobText(run.job)); !status.ok()) return status;
  TrainBounds bounds = runner.bounds;
  bounds.train = run.seconds;
  progress->Begin(LabelOf(run));
  const absl::StatusOr<TrainOutcome> outcome =
      RunCluster(PlanCluster(runner, run, *directory), bounds, runner.signals, progress);
  if (absl::IsAborted(outcome.status())) *signal = SIGINT;
  if (outcome.ok()) *signal = outcome->signal;
  if (*signal != 0) return absl::AbortedError("interrupted");
  std::error_code error;
  std::filesystem::remove_all(directory->checkpoints(), error);
  const absl::Status status = outcome.ok() ? outcome->status : outcome.status();
  progress->End(status.ok() ? ResultLine(*directory) : absl::StrCat("failed: ", status.message()));
  return absl::OkStatus();
}

}  // namespace

absl::Status CompareRunner::RunMissing(const std::vector<PlannedRun>& runs, int* signal) const {
  std::vector<PlannedRun> missing;
  for (const PlannedRun& run : runs) {
    if (!IsDone(run, directory.PathOf(run))) missing.push_back(run);
  }
  const SteadyClock clock;
  if (missing.size() < runs.size()) {
    *out << runs.size() - missing.size() << " of " << Plural(runs.size(), "run") << " are already done\n"
         << std::flush;
  }
  CompareProgress progress(out, columns, static_cast<int>(missing.size()), &clock);
  for (const PlannedRun& run : missing) {
    if (absl::Status status = RunOne(*this, run, &progress, signal); !status.ok()) return status;
  }
  return absl::OkStatus();
}

std::string ResultLine(const RunDirectory& directory) {
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(directory.summary());
  if (!summary.ok()) return std::string(summary.status().message());
  const std::string time = Seconds(summary->value("wall_seconds", 0.0));
  if (summary->value("phase", "") == "FAILED") return absl::StrCat("failed: ", summary->value("reason", ""));
  const auto accuracy = summary->find("test_accuracy"), loss = summary->find("test_loss");
  if (accuracy != summary->end() && accuracy->is_number()) {
    return absl::StrCat(Percent(accuracy->get<double>()), " in ", time);
  }
  if (loss == summary->end() || !loss->is_number()) return time;
  return absl::StrFormat("loss %.4g in %s", loss->get<double>(), time);
}

std::string LabelOf(const PlannedRun& run) {
  return absl::StrCat(run.algorithm, ", ", Plural(run.workers, "worker"), ", seed ", run.seed);
}

void CompareProgress::End(const std::string& result) {
  ++done_;
  Note(absl::StrCat(Head(), label_, ": ", result, TimeLeft()));
}

void CompareProgress::Update(const v1::JobStatus& status) {
  line_.Draw(absl::StrCat(Head(), label_, TimeLeft(), " | ", ProgressLine(status)));
}

std::string CompareProgress::Head() const {
  const int width = static_cast<int>(absl::StrCat(runs_).size());
  return absl::StrFormat("[%*d/%d] ", width, done_, runs_);
}

std::string CompareProgress::TimeLeft() const {
  if (done_ == 0 || done_ == runs_) return "";
  const double each = (clock_.Now() - began_) / done_;
  return absl::StrCat(" | ", Seconds(each * (runs_ - done_)), " left");
}

}  // namespace catchment
