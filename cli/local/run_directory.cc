#include "cli/local/run_directory.h"

#include <fcntl.h>

#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
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

}  // namespace

absl::StatusOr<LockedDirectory> LockedDirectory::Open(const std::string& path, const std::string& command) {
  RETURN_IF_ERROR(CreateDirectory(path));
  ASSIGN_OR_RETURN(
      DirectoryLock lock,
      DirectoryLock::Take(path, {"command.lock", absl::StrCat("another running `", command, "`")}));
  return LockedDirectory(path, std::move(lock));
}

absl::StatusOr<RunDirectory> RunDirectory::Open(const std::string& path, StartMode mode) {
  ASSIGN_OR_RETURN(LockedDirectory locked, LockedDirectory::Open(path, "catchment train"));
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
  if (mode != StartMode::kResume) {
    for (const std::string& old :
         {job(), logs(), metrics(), tensorboard(), checkpoints(), best_model(), initial_weights()}) {
      RETURN_IF_ERROR(Delete(old));
    }
  }
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

bool HasCheckpoint(const std::string& run_directory) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_directory + "/checkpoints", error)) {
    if (fs::exists(entry.path() / "manifest.textproto", error)) return true;
  }
  return false;
}

absl::StatusOr<nlohmann::json> ReadSummary(const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(file));
  nlohmann::json summary = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object()) return absl::InvalidArgumentError(absl::StrCat(file, " is not a JSON object"));
  return summary;
}

absl::Status Delete(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
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
