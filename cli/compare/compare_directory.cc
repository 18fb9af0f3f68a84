#include "cli/compare/compare_directory.h"

#include <filesystem>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/local/run_directory.h"
#include "cli/local/train_monitor.h"
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
constexpr const char* kRuns[] = {"runs", "search"};
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
    const Json before = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    const std::string difference =
        before.is_object() ? DescribeDifference(before, record) : "its compare.json is damaged";
    if (difference.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(path, " holds another comparison: ", difference,
                     "; choose another --out, or start again with --overwrite (deletes it)"));
  }
  // Writes the record completely or not at all; a comparison that is killed here starts again.
  const std::string unfinished = absl::StrCat(path, kRecord, ".new");
  RETURN_IF_ERROR(WriteFile(unfinished, record.dump(2) + "\n"));
  std::error_code error;
  fs::rename(unfinished, path + kRecord, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path, kRecord, ": ", error.message()));
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
