#include "cli/compare/compare_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/run_directory.h"
#include "cli/status_text.h"
#include "cli/train_monitor.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string Value(const Json& value) { return value.is_null() ? "none" : value.dump(); }

// The first lines at which two jobs part.
std::string JobDifference(const std::string& before, const std::string& now) {
  const std::vector<std::string> old_lines = absl::StrSplit(before, '\n');
  const std::vector<std::string> new_lines = absl::StrSplit(now, '\n');
  size_t line = 0;
  while (line < old_lines.size() && line < new_lines.size() && old_lines[line] == new_lines[line]) ++line;
  const auto at = [line](const std::vector<std::string>& lines) {
    return line < lines.size() && !lines[line].empty() ? std::string(absl::StripAsciiWhitespace(lines[line]))
                                                       : "nothing";
  };
  return absl::StrCat("the job has `", at(new_lines), "`, there it had `", at(old_lines), "`");
}

absl::Status MakeDirectory(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("cannot make the directory ", path, ": ", error.message()));
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
  record["search"] = options.search;
  record["servers"] = options.servers;
  record["threads"] = options.threads;
  record["device"] = options.device;
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
    return absl::StrCat("--", key, " is ", Value(value), ", there it was ", Value(old));
  }
  return "";
}

absl::StatusOr<CompareDirectory> CompareDirectory::Open(const std::string& path, bool overwrite,
                                                        const Json& record) {
  if (absl::Status made = MakeDirectory(path); !made.ok()) return made;
  // A lock of the kernel's: it goes when the process goes, however that ends.
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open the directory ", path));
  CompareDirectory directory(path, fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is in use by another running `catchment compare`; wait for its end, or take another --out"));
  }
  if (absl::Status status = directory.Prepare(overwrite, record); !status.ok()) return status;
  return directory;
}

CompareDirectory::CompareDirectory(CompareDirectory&& other) noexcept
    : path_(std::move(other.path_)), lock_fd_(std::exchange(other.lock_fd_, -1)) {}

CompareDirectory::~CompareDirectory() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

absl::Status CompareDirectory::Prepare(bool overwrite, const Json& record) const {
  const std::string record_path = path_ + "/compare.json";
  if (overwrite) {
    std::error_code error;
    for (const std::string& old :
         {path_ + "/runs", path_ + "/search", report_json(), report_html(), record_path, initial_weights()}) {
      fs::remove_all(old, error);
      if (error)
        return absl::PermissionDeniedError(absl::StrCat("cannot delete ", old, ": ", error.message()));
    }
  }
  if (const absl::StatusOr<std::string> text = ReadTextFile(record_path); text.ok()) {
    const Json before = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    const std::string difference =
        before.is_object() ? DescribeDifference(before, record) : "its compare.json is damaged";
    if (difference.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " holds another comparison: ", difference,
                     "; take another --out, or start again with --overwrite (deletes it)"));
  }
  // Whole or not at all: a comparison that is killed here begins anew.
  const std::string unfinished = record_path + ".new";
  if (absl::Status status = WriteFile(unfinished, record.dump(2) + "\n"); !status.ok()) return status;
  std::error_code error;
  fs::rename(unfinished, record_path, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", record_path, ": ", error.message()));
}

bool IsDone(const PlannedRun& run, const std::string& path) {
  const absl::StatusOr<std::string> job = ReadTextFile(path + "/job.textproto");
  if (!job.ok() || *job != JobText(run.job)) return false;
  const absl::StatusOr<std::string> text = ReadTextFile(path + "/summary.json");
  if (!text.ok()) return false;
  const absl::StatusOr<nlohmann::json> summary = ParseSummary(*text, path);
  if (!summary.ok()) return false;
  if (summary->value("phase", "") == "DONE") return true;
  return run.seconds > 0 && summary->value("phase", "") == "STOPPED" &&
         summary->value("reason", "") == TimeIsUp(run.seconds);
}

}  // namespace catchment
