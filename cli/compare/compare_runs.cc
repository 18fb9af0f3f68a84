#include "cli/compare/compare_runs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/base/run_directory.h"
#include "cli/compare/launcher.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/job_text.h"

namespace catchment {
namespace {

// ", goodput 0.88, uptime 1.00"; "" if it was not simulated.
std::string GoodputOf(const nlohmann::json& summary) {
  const auto goodput = summary.find("goodput"), uptime = summary.find("uptime");
  if (goodput == summary.end() || uptime == summary.end()) return "";
  if (!goodput->is_number() || !uptime->is_number()) return "";
  return absl::StrFormat(", goodput %.2f, uptime %.2f", goodput->get<double>(), uptime->get<double>());
}

}  // namespace

absl::Status RunMissing(const std::vector<PlannedRun>& runs, const CompareDirectory& directory,
                        Launcher* launcher, const Streams& streams, int* signal) {
  std::vector<PlannedRun> missing;
  for (const PlannedRun& run : runs) {
    const std::string path = directory.PathOf(run);
    if (directory.OutcomeOf(run) == RunOutcome::kNone) {
      missing.push_back(run);
    } else {
      // A run may have ended without a command that waited for it.
      DeleteCheckpoints(path);
    }
  }
  if (missing.size() < runs.size()) {
    *streams.out << runs.size() - missing.size() << " of " << Plural(runs.size(), "run")
                 << " are already done\n"
                 << std::flush;
  }
  const SteadyClock clock;
  CompareProgress progress(streams.out, streams.out_size().columns, static_cast<int>(missing.size()), &clock);
  if (missing.empty()) return absl::OkStatus();
  const auto none = [&directory](const PlannedRun& ended) {
    directory.NoteEnd(ended);
    return std::vector<PlannedRun>();
  };
  return launcher->Launch(std::move(missing), none, directory, &progress, signal);
}

absl::StatusOr<RunDirectory> PrepareRun(const PlannedRun& run, const CompareDirectory& directory) {
  // All in it is of a run, because the comparison has made the directory.
  ASSIGN_OR_RETURN(RunDirectory prepared,
                   RunDirectory::Open(directory.PathOf(run), StartMode::kOverwrite, Unclaimed::kOurs));
  RETURN_IF_ERROR(prepared.WriteJob(run.job));
  return prepared;
}

void DeleteCheckpoints(const std::string& run_directory) {
  DeleteRunCheckpoints(run_directory).IgnoreError();
}

std::string ResultLine(const std::string& run_directory) {
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(run_directory + "/summary.json");
  if (!summary.ok()) return std::string(summary.status().message());
  const std::string time = Seconds(summary->value("wall_seconds", 0.0)) + GoodputOf(*summary);
  if (summary->value("phase", "") == "FAILED")
    return absl::StrCat("failed: ", OneLine(summary->value("reason", "")));
  const auto accuracy = summary->find("test_accuracy"), loss = summary->find("test_loss");
  if (accuracy != summary->end() && accuracy->is_number()) {
    return absl::StrCat(Percent(accuracy->get<double>()), " in ", time);
  }
  if (loss == summary->end() || !loss->is_number()) return time;
  return absl::StrFormat("loss %.4g in %s", loss->get<double>(), time);
}

std::string LabelOf(const PlannedRun& run) {
  return absl::StrCat(run.algorithm, ", ", Plural(run.workers, "worker"), ", ",
                      run.trial.empty() ? absl::StrCat("seed ", run.seed) : run.trial);
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
