#include "common/checkpoint/directory_claim.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/atomic_file.h"
#include "common/base/file_access.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/manifest.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;

constexpr char kHeader[] =
    "# Catchment writes these names in this directory, and deletes them to start again.\n";

std::string RecordPath(const std::string& directory) { return directory + "/catchment.claim"; }

// Returns true if there is something to lose: anything but an empty directory.
bool IsInUse(const std::string& path) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return false;
  return !fs::is_directory(path, error) || !fs::is_empty(path, error) || error;
}

}  // namespace

absl::StatusOr<std::set<std::string>> ClaimedNames(const std::string& directory) {
  const std::string path = RecordPath(directory);
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) return std::set<std::string>();
  RETURN_IF_ERROR(text.status());
  if (!absl::StartsWith(*text, kHeader)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " was not written by Catchment: move it, or choose another directory"));
  }
  std::set<std::string> names = absl::StrSplit(text->substr(sizeof(kHeader) - 1), '\n', absl::SkipEmpty());
  return names;
}

absl::Status CheckClaim(const std::string& directory, const Names& names, Unclaimed unclaimed) {
  ASSIGN_OR_RETURN(const std::set<std::string> claimed, ClaimedNames(directory));
  if (unclaimed == Unclaimed::kOurs) return absl::OkStatus();
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(directory, "/", name);
    if (claimed.count(name) > 0 || !IsInUse(path)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        path, " was not written by Catchment (", directory,
        "/catchment.claim does not list it), and would be overwritten: choose another --out, or move it"));
  }
  return absl::OkStatus();
}

absl::Status ClaimNames(const std::string& directory, const Names& names, Unclaimed unclaimed) {
  RETURN_IF_ERROR(CheckClaim(directory, names, unclaimed));
  ASSIGN_OR_RETURN(std::set<std::string> claimed, ClaimedNames(directory));
  const size_t before = claimed.size();
  claimed.insert(names.begin(), names.end());
  if (claimed.size() == before) return absl::OkStatus();
  RETURN_IF_ERROR(CreateDirectories(directory));
  return WriteAtomically(RecordPath(directory), absl::StrCat(kHeader, absl::StrJoin(claimed, "\n"), "\n"));
}

const Names& MasterNames() {
  static const auto* const names =
      new Names{"metrics.jsonl",          "tensorboard",    "summary.json", "model.safetensors",
                "model-best.safetensors", "master.address", "master.run",   "checkpoints"};
  return *names;
}

Unclaimed ProvenByRun(const std::string& checkpoint_directory) {
  if (ReadRunRecord(checkpoint_directory).ok()) return Unclaimed::kOurs;
  const absl::StatusOr<std::vector<uint64_t>> numbers = ListCheckpoints(checkpoint_directory);
  if (!numbers.ok()) return Unclaimed::kForeign;
  const bool any = std::any_of(numbers->begin(), numbers->end(), [&](uint64_t number) {
    return ReadManifest(checkpoint_directory, number).ok();
  });
  return any ? Unclaimed::kOurs : Unclaimed::kForeign;
}

}  // namespace catchment
