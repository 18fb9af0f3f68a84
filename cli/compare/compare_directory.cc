#include "cli/compare/compare_directory.h"

#include <filesystem>
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
  ASSIGN_OR_RETURN(LockedDirectory locked, LockedDirectory::Open(path, "catchment compare"));
  CompareDirectory directory(std::move(locked));
  RETURN_IF_ERROR(directory.Prepare(overwrite, record));
  return directory;
}

absl::Status CompareDirectory::Prepare(bool overwrite, const Json& record) const {
  const std::string& path = directory_.path();
  const std::string record_path = path + "/compare.json";
  if (overwrite) {
    for (const std::string& old : {path + "/runs", path + "/search", path + kReportJson, path + kReportPage,
                                   record_path, initial_weights()}) {
      RETURN_IF_ERROR(Delete(old));
    }
  }
  if (const absl::StatusOr<std::string> text = ReadTextFile(record_path); text.ok()) {
    const Json before = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    const std::string difference =
        before.is_object() ? DescribeDifference(before, record) : "its compare.json is damaged";
    if (difference.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(path, " holds another comparison: ", difference,
                     "; choose another --out, or start again with --overwrite (deletes it)"));
  }
  // Writes the record completely or not at all; a comparison that is killed here starts again.
  const std::string unfinished = record_path + ".new";
  RETURN_IF_ERROR(WriteFile(unfinished, record.dump(2) + "\n"));
  std::error_code error;
  fs::rename(unfinished, record_path, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", record_path, ": ", error.message()));
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
