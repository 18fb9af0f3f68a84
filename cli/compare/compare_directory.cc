#include "cli/compare/compare_directory.h"

#include <glog/logging.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/base/run_directory.h"
#include "cli/compare/kubernetes_run.h"
#include "cli/local/train_monitor.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string Value(const Json& value) { return value.is_null() ? "none" : value.dump(); }

// Returns the first lines in which two jobs differ.
std::string JobDifference(const std::string& before, const std::string& now) {
  const std::vector<std::string> old_lines = absl::StrSplit(before, '\n');
  const std::vector<std::string> new_lines = absl::StrSplit(now, '\n');
  size_t line = 0;
  while (line < old_lines.size() && line < new_lines.size() && old_lines[line] == new_lines[line]) ++line;
  const auto at = [line](const std::vector<std::string>& lines) {
    return line < lines.size() && !lines[line].empty() ? std::string(absl::StripAsciiWhitespace(lines[line]))
                                                       : "nothing";
  };
  return absl::StrCat("the job has `", at(new_lines), "`, but had `", at(old_lines), "`");
}

constexpr char kRecord[] = "/compare.json";
constexpr char kData[] = "data";  // a key of the record
constexpr const char* kRuns[] = {"runs", "search"};
// Files of a run on Kubernetes.
constexpr const char* kManifestFiles[] = {"run.yaml", "job.textproto", "kustomization.yaml"};
constexpr const char* kFiles[] = {"compare.json",   "initial.safetensors", "report.json", "report.html",
                                  "best.textproto", "squeue.log",          "kubectl.log"};

Names CompareNames() {
  Names names(std::begin(kFiles), std::end(kFiles));
  names.insert(names.end(), std::begin(kRuns), std::end(kRuns));
  return names;
}

// Returns true if the directory has the record of a comparison.
bool IsComparison(const std::string& path) {
  const Json record =
      Json::parse(ReadTextFile(path + kRecord).value_or(""), nullptr, /*allow_exceptions=*/false);
  return record.is_object() && record.contains("algorithms") && record.contains("job");
}

// Deletes the files in the directory of a run's manifests, unless it is a link to one of somebody else.
absl::Status DeleteManifests(const std::string& path) {
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(path, error))) return absl::OkStatus();
  for (const char* const file : kManifestFiles) {
    RETURN_IF_ERROR(Delete(absl::StrCat(path, "/", file)));
  }
  rmdir(path.c_str());
  return absl::OkStatus();
}

// Deletes the runs in a directory, and the directory if nothing else is in it.
absl::Status DeleteRuns(const std::string& path) {
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(path, error))) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is a symbolic link, whose files are not deleted: remove the link, or choose another --out"));
  }
  std::vector<std::string> runs;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (fs::is_directory(entry.symlink_status())) runs.push_back(entry.path().string());
  }
  for (const std::string& run : runs) {
    RETURN_IF_ERROR(DeleteManifests(run + kManifests));
    RETURN_IF_ERROR(DeleteRun(run));
  }
  fs::remove(path, error);
  return absl::OkStatus();
}

}  // namespace

Json CompareRecord(const CompareOptions& options, const v1::Job& given) {
  Json record;
  record["algorithms"] = options.algorithms;
  record["workers"] = options.workers;
  record["seeds"] = options.seeds;
  record["budget"] = ToString(options.budget);
  record["straggler"] = Json::array();
  for (const v1::Straggler& straggler : options.stragglers)
    record["straggler"].push_back(ToString(straggler));
  record["search"] = ToString(options.search);
  record["servers"] = options.servers;
  record["threads"] = options.threads;
  record["device"] = options.device;
  if (options.launcher == LauncherKind::kSlurm) {
    record["launcher"] = "slurm";
    record["nodes"] = options.slurm.nodes;
    record["gpus_per_node"] = options.slurm.gpus_per_node;
    record["partition"] = options.slurm.partition;
  }
  if (options.launcher == LauncherKind::kKubernetes) {
    record["launcher"] = "kubectl";
    for (const auto& [flag, value] : GivenFlags(options.kubernetes)) record[flag] = value;
    record["overlay"] = options.overlay;
  }
  if (!options.program.empty()) record["program"] = options.program;
  record["job"] = JobText(given);
  return record;
}

std::string DescribeDifference(const Json& before, const Json& now) {
  for (const auto& [key, value] : now.items()) {
    const Json old = before.contains(key) ? before[key] : Json();
    if (old == value) continue;
    if (key == "job" && old.is_string()) {
      return JobDifference(old.get<std::string>(), value.get<std::string>());
    }
    return absl::StrCat("--", key, " is ", Value(value), ", but was ", Value(old));
  }
  for (const auto& [key, old] : before.items()) {
    if (!now.contains(key)) return absl::StrCat("--", key, " is none, but was ", Value(old));
  }
  return "";
}

absl::StatusOr<CompareDirectory> CompareDirectory::Open(const std::string& path, bool overwrite,
                                                        const Json& record) {
  // An earlier version has left no record of its names.
  const Unclaimed unclaimed = IsComparison(path) ? Unclaimed::kOurs : Unclaimed::kForeign;
  ASSIGN_OR_RETURN(LockedDirectory locked,
                   LockedDirectory::Open(path, "catchment compare", CompareNames(), unclaimed));
  CompareDirectory directory(std::move(locked));
  RETURN_IF_ERROR(directory.Prepare(overwrite, record));
  return directory;
}

absl::Status CompareDirectory::Check(const std::string& path) {
  return CheckClaim(path, CompareNames(), IsComparison(path) ? Unclaimed::kOurs : Unclaimed::kForeign);
}

absl::Status CompareDirectory::Prepare(bool overwrite, const Json& record) const {
  const std::string& path = directory_.path();
  if (overwrite) {
    for (const char* const runs : kRuns) {
      RETURN_IF_ERROR(DeleteRuns(absl::StrCat(path, "/", runs)));
    }
    for (const char* const file : kFiles) {
      RETURN_IF_ERROR(Delete(absl::StrCat(path, "/", file)));
    }
  }
  if (const absl::StatusOr<std::string> text = ReadTextFile(path + kRecord); text.ok()) {
    Json before = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (before.is_object() && before.contains(kData)) {
      const MutexLock lock(&data_->mu);
      data_->last = DataFromJson(before[kData]);
      before.erase(kData);
    }
    const std::string difference =
        before.is_object() ? DescribeDifference(before, record) : "its compare.json is damaged";
    if (difference.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(path, " holds another comparison: ", difference,
                     "; choose another --out, or start again with --overwrite (deletes it)"));
  }
  return WriteRecord(record);
}

// Writes the record completely or not at all; a comparison that is killed here starts again.
absl::Status CompareDirectory::WriteRecord(const Json& record) const {
  const std::string path = directory_.path() + kRecord;
  return WriteAtomically(path, record.dump(2) + "\n");
}

RunOutcome CompareDirectory::OutcomeOf(const PlannedRun& run) const {
  const RunOutcome outcome = catchment::OutcomeOf(run, PathOf(run));
  if (outcome == RunOutcome::kNone) return outcome;
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(PathOf(run) + "/summary.json");
  const MutexLock lock(&data_->mu);
  const bool of_other_data = summary.ok() && !DescribeDifference(data_->last, DataOf(*summary)).empty();
  return of_other_data ? RunOutcome::kNone : outcome;
}

void CompareDirectory::NoteEnd(const PlannedRun& run) const {
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(PathOf(run) + "/summary.json");
  if (!summary.ok() || catchment::OutcomeOf(run, PathOf(run)) == RunOutcome::kNone) return;
  const RunData data = DataOf(*summary);
  const MutexLock lock(&data_->mu);
  std::string change = DescribeDifference(data_->last, data);
  if (!change.empty()) {
    data_->change = std::move(change);
  } else if (data_->last.train_samples > 0) {
    return;
  }
  data_->last = data;
  Json record = Json::parse(ReadTextFile(directory_.path() + kRecord).value_or(""), nullptr, false);
  if (!record.is_object()) return;
  record[kData] = ToJson(data);
  // Without it the next command would only compare with the runs that it executes.
  const absl::Status status = WriteRecord(record);
  LOG_IF(WARNING, !status.ok()) << status.message();
}

bool CompareDirectory::data_changed() const {
  const MutexLock lock(&data_->mu);
  return !data_->change.empty();
}

absl::StatusOr<bool> CompareDirectory::TakeChange(std::ostream* out) const {
  constexpr int kMostChanges = 3;  // of one command
  const MutexLock lock(&data_->mu);
  const std::string change = std::exchange(data_->change, "");
  if (change.empty()) return false;
  if (++data_->changes > kMostChanges) {
    return absl::UnavailableError(absl::StrCat("the data differ from run to run (", change,
                                               "): give all runs the same data, and repeat the command"));
  }
  *out << "the data have changed: " << change << "; runs of the old data are done again\n" << std::flush;
  return true;
}

RunOutcome OutcomeOf(const PlannedRun& run, const std::string& path) {
  const absl::StatusOr<std::string> job = ReadTextFile(path + "/job.textproto");
  if (!job.ok() || *job != JobText(run.job)) return RunOutcome::kNone;
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(path + "/summary.json");
  if (!summary.ok()) return RunOutcome::kNone;
  if (HasDiverged(*summary)) return RunOutcome::kDiverged;
  if (TextOrEmpty(*summary, "phase") == "DONE") return RunOutcome::kDone;
  const bool time_is_up = run.seconds > 0 && TextOrEmpty(*summary, "phase") == "STOPPED" &&
                          TextOrEmpty(*summary, "reason") == TimeIsUp(run.seconds);
  return time_is_up ? RunOutcome::kDone : RunOutcome::kNone;
}

}  // namespace catchment
