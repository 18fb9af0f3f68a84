#include "cli/base/run_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <regex>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;

absl::Status CreateDirectory(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("cannot create the directory ", path, ": ", error.message()));
}

// A name in the directory of a run.
struct RunName {
  const char* name;
  const char* inside = nullptr;  // a directory: a regular expression of the files that a run writes to it
};

constexpr RunName kNames[] = {
    {"job.textproto"},
    {"initial.safetensors"},
    {"program.txt"},
    {"logs", "(server|worker)-[0-9]+\\.log|(evaluator|workers|sbatch|slurm|scancel|validate|certs)\\.log"},
    {"metrics.jsonl"},
    {"tensorboard", "events\\.out\\.tfevents\\..*"},
    {"summary.json"},
    {"model.safetensors"},
    {"model-best.safetensors"},
    {"master.address"},
    {"master.run"},
    {"checkpoints", ""},
};

Names RunNames() {
  Names names;
  for (const RunName& one : kNames) names.push_back(one.name);
  return names;
}

// Returns how files without a record are regarded: a run of an earlier version has left a checkpoint, or its
// result.
Unclaimed Proven(const std::string& path, Unclaimed unclaimed) {
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(path + "/summary.json");
  if (summary.ok() && summary->contains("phase") && summary->contains("pushes_applied"))
    return Unclaimed::kOurs;
  return unclaimed == Unclaimed::kOurs ? unclaimed : ProvenByRun(path + "/checkpoints");
}

// Deletes the files of a directory that match, and then the directory, if it is empty.
absl::Status DeleteInside(const std::string& path, const std::string& inside) {
  const std::regex matching(inside);
  std::vector<std::string> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (!entry.is_directory(error) && std::regex_match(entry.path().filename().string(), matching))
      files.push_back(entry.path().string());
  }
  for (const std::string& file : files) {
    RETURN_IF_ERROR(Delete(file));
  }
  rmdir(path.c_str());
  return absl::OkStatus();
}

absl::Status DeleteName(const std::string& directory, const RunName& one) {
  const std::string path = absl::StrCat(directory, "/", one.name);
  if (one.inside == nullptr) return Delete(path);
  if (*one.inside != '\0') return DeleteInside(path, one.inside);
  return DeleteRunCheckpoints(directory);
}

// Refuses links, since the files behind them are not known to be Catchment's.
absl::Status RefuseLinks(const std::string& directory) {
  for (const RunName& one : kNames) {
    const std::string path = absl::StrCat(directory, "/", one.name);
    std::error_code error;
    if (!fs::is_symlink(fs::symlink_status(path, error))) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is a symbolic link, whose files are not deleted: remove the link, or choose another --out"));
  }
  return absl::OkStatus();
}

// Returns an error if a master that another command has started uses the directory.
absl::Status RefuseMaster(const std::string& directory) {
  for (const std::string& path : {directory, directory + "/checkpoints"}) {
    std::error_code error;
    if (fs::exists(path + "/master.lock", error)) RETURN_IF_ERROR(DirectoryLock::Take(path).status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LockedDirectory> LockedDirectory::Open(const std::string& path, const std::string& command,
                                                      const Names& names, Unclaimed unclaimed) {
  RETURN_IF_ERROR(CheckClaim(path, names, unclaimed));
  RETURN_IF_ERROR(CreateDirectory(path));
  ASSIGN_OR_RETURN(
      DirectoryLock lock,
      DirectoryLock::Take(path, {"command.lock", absl::StrCat("another running `", command, "`")}));
  RETURN_IF_ERROR(ClaimNames(path, names, unclaimed));
  return LockedDirectory(path, std::move(lock));
}

absl::Status ClaimForBatch(const std::string& directory, const std::string& job) {
  Names names = {job};
  std::error_code error;
  if (!fs::exists(directory + "/logs", error)) names.push_back("logs");
  return ClaimNames(directory, names, Unclaimed::kOurs);
}

absl::Status CheckRunDirectory(const std::string& path, Unclaimed unclaimed) {
  return CheckClaim(path, RunNames(), Proven(path, unclaimed));
}

absl::Status DeleteRunCheckpoints(const std::string& run_directory) {
  const std::string path = run_directory + "/checkpoints";
  RETURN_IF_ERROR(DeleteAllCheckpoints(path));
  return DeleteInside(path, "master\\.lock|master\\.address|master\\.run|catchment\\.claim");
}

absl::Status DeleteRun(const std::string& run_directory) {
  RETURN_IF_ERROR(CheckRunDirectory(run_directory));
  RETURN_IF_ERROR(RefuseLinks(run_directory));
  for (const RunName& one : kNames) {
    // The job is replaced when it is known, and may be the file that the user has given.
    if (one.name != absl::string_view("job.textproto")) RETURN_IF_ERROR(DeleteName(run_directory, one));
  }
  return absl::OkStatus();
}

absl::StatusOr<RunDirectory> RunDirectory::Open(const std::string& path, StartMode mode,
                                                Unclaimed unclaimed) {
  RETURN_IF_ERROR(CheckRunDirectory(path, unclaimed));
  RETURN_IF_ERROR(RefuseMaster(path));
  ASSIGN_OR_RETURN(LockedDirectory locked,
                   LockedDirectory::Open(path, "catchment train", RunNames(), Proven(path, unclaimed)));
  RunDirectory directory(std::move(locked));
  RETURN_IF_ERROR(directory.Prepare(mode));
  return directory;
}

absl::Status RunDirectory::Prepare(StartMode mode) const {
  if (mode == StartMode::kResume && !HasCheckpoint()) {
    return absl::FailedPreconditionError(absl::StrCat("--resume: there is no complete checkpoint in ",
                                                      checkpoints(), "; start again without --resume"));
  }
  if (mode == StartMode::kFresh) {
    RETURN_IF_ERROR(RefuseLeftovers());
  }
  // Deletes the files of a run without a checkpoint or with --overwrite. The result of an earlier run must
  // not be mistaken for that of this one.
  if (mode != StartMode::kResume) RETURN_IF_ERROR(DeleteRun(path()));
  for (const std::string& old : {model(), summary()}) {
    RETURN_IF_ERROR(Delete(old));
  }
  return CreateDirectory(logs());
}

absl::Status RunDirectory::RefuseLeftovers() const {
  const std::string ways =
      "continue with --resume, start again with --overwrite (deletes it), or choose another --out";
  const absl::StatusOr<nlohmann::json> summary_json = ReadSummary(summary());
  if (summary_json.ok() && summary_json->value("phase", "") == "DONE") {
    return absl::FailedPreconditionError(
        absl::StrCat(path(), " contains the result of a finished run: ", ways));
  }
  if (HasCheckpoint()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path(), " contains the checkpoints of an unfinished run: ", ways));
  }
  return absl::OkStatus();
}

absl::Status RunDirectory::WriteJob(const v1::Job& complete) const {
  const std::string text = JobText(complete);
  return ReadTextFile(job()).value_or("") == text ? absl::OkStatus() : WriteFile(job(), text);
}

bool HasCheckpoint(const std::string& run_directory) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_directory + "/checkpoints", error)) {
    if (fs::exists(entry.path() / "manifest.textproto", error)) return true;
  }
  return false;
}

std::string ReadProgram(const std::string& run_directory) {
  const std::string text = ReadTextFile(run_directory + "/program.txt").value_or("");
  return std::string(absl::StripSuffix(text, "\n"));
}

absl::StatusOr<nlohmann::json> ReadSummary(const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(file));
  nlohmann::json summary = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object()) return absl::InvalidArgumentError(absl::StrCat(file, " is not a JSON object"));
  return summary;
}

absl::Status Delete(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("cannot delete ", path, ": ", error.message()));
}

absl::Status WriteFile(const std::string& path, const std::string& text, FileNamedBy named_by) {
  ASSIGN_OR_RETURN(const int descriptor, OpenFile(path, O_WRONLY | O_CREAT | O_TRUNC, named_by, 0666));
  FILE* const file = fdopen(descriptor, "w");
  const bool written = fwrite(text.data(), 1, text.size(), file) == text.size();
  if (fclose(file) == 0 && written) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path));
}

}  // namespace catchment
