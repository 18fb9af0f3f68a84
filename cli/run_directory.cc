#include "cli/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/text_format.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

namespace fs = std::filesystem;

bool IsFinished(const std::string& summary_path) {
  const absl::StatusOr<std::string> text = ReadTextFile(summary_path);
  if (!text.ok()) return false;
  const nlohmann::json summary = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return summary.is_object() && summary.contains("phase") && summary["phase"] == "DONE";
}

absl::Status Remove(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("cannot delete ", path, ": ", error.message()));
}

absl::Status MakeDirectory(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("cannot make the directory ", path, ": ", error.message()));
}

}  // namespace

absl::StatusOr<RunDirectory> RunDirectory::Open(const std::string& path, StartMode mode) {
  if (absl::Status made = MakeDirectory(path); !made.ok()) return made;
  // A lock of the kernel's: it goes when the process goes, however that ends.
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open the directory ", path));
  RunDirectory directory(path, fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is in use by another running `catchment train`; wait for its end, or take another --out"));
  }
  if (absl::Status status = directory.Prepare(mode); !status.ok()) return status;
  return directory;
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)), lock_fd_(std::exchange(other.lock_fd_, -1)) {}

RunDirectory::~RunDirectory() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

absl::Status RunDirectory::Prepare(StartMode mode) const {
  if (mode == StartMode::kResume && !HasCheckpoint()) {
    return absl::FailedPreconditionError(absl::StrCat("--resume: there is no complete checkpoint in ",
                                                      checkpoints(), "; start again without --resume"));
  }
  if (mode == StartMode::kFresh) {
    if (absl::Status status = RefuseLeftovers(); !status.ok()) return status;
  }
  // Of a run that got nowhere, or that --overwrite gives up. A result that is not this run's must not be left
  // to be taken for it.
  if (mode != StartMode::kResume) {
    for (const std::string& old :
         {job(), logs(), metrics(), tensorboard(), checkpoints(), best_model(), initial_weights()}) {
      if (absl::Status status = Remove(old); !status.ok()) return status;
    }
  }
  for (const std::string& old : {model(), summary()}) {
    if (absl::Status status = Remove(old); !status.ok()) return status;
  }
  return MakeDirectory(logs());
}

absl::Status RunDirectory::RefuseLeftovers() const {
  const std::string ways =
      "go on with --resume, start again with --overwrite (deletes it), or take another --out";
  if (IsFinished(summary())) {
    return absl::FailedPreconditionError(absl::StrCat(path_, " holds the result of a finished run: ", ways));
  }
  if (HasCheckpoint()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " holds the checkpoints of an unfinished run: ", ways));
  }
  return absl::OkStatus();
}

bool RunDirectory::HasCheckpoint() const {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints(), error)) {
    if (fs::exists(entry.path() / "manifest.textproto", error)) return true;
  }
  return false;
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace catchment
