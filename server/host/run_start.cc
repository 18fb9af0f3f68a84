#include "server/host/run_start.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/manifest.h"
#include "common/job/job_text.h"

namespace catchment {
namespace {

std::string Place(uint64_t checkpoint) {
  return checkpoint == 0 ? "the initial weights" : absl::StrCat("checkpoint ", Count(checkpoint));
}

// Returns the newest complete checkpoint, and sets newer ones aside. NotFound if there is none.
absl::StatusOr<v1::Manifest> TakeLatest(const std::string& directory, const v1::Job& job) {
  ASSIGN_OR_RETURN(FoundCheckpoint found, FindLatest(directory));
  for (const std::string& warning : found.warnings) LOG(WARNING) << warning;
  const uint64_t number = found.manifest.number();
  const std::string conflict = DescribeResumeConflict(found.manifest.job(), job);
  if (!conflict.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", number, " in ", directory, " belongs to a different job:\n", conflict));
  }
  LOG(INFO) << "resuming from checkpoint " << number << " in " << directory;
  ASSIGN_OR_RETURN(const std::vector<std::string> lines, SetAsideNewerThan(directory, number));
  for (const std::string& line : lines) LOG(WARNING) << line;
  return std::move(found.manifest);
}

// Deletes the checkpoints of a job that has not completed any. `not_found`: the result of FindLatest, which
// is returned if one was complete and is damaged: the job must not begin anew without being asked to.
absl::Status DeleteIncomplete(const std::string& directory, const absl::Status& not_found) {
  const absl::StatusOr<std::vector<uint64_t>> numbers = ListCheckpoints(directory);
  if (absl::IsNotFound(numbers.status())) return absl::OkStatus();
  RETURN_IF_ERROR(numbers.status());
  for (uint64_t number : *numbers) {
    if (!absl::IsNotFound(ReadManifest(directory, number).status())) return not_found;
  }
  return SetAsideNewerThan(directory, 0).status();
}

// Returns the record in the directory; an empty one if there is none.
absl::StatusOr<v1::RunRecord> ReadOrEmpty(const std::string& directory) {
  absl::StatusOr<v1::RunRecord> read = ReadRunRecord(directory);
  if (absl::IsNotFound(read.status())) return v1::RunRecord();
  return read;
}

bool HasNotEnded(const v1::RunRecord& record, const v1::Job& job) {
  return record.run_id() != 0 && !record.ended() && record.job_fingerprint() == JobFingerprint(job);
}

absl::Status CheckHasNoCheckpoint(const std::string& directory) {
  const absl::StatusOr<FoundCheckpoint> found = FindLatest(directory);
  if (absl::IsNotFound(found.status())) return absl::OkStatus();
  RETURN_IF_ERROR(found.status());
  return absl::FailedPreconditionError(absl::StrCat(
      directory, " contains checkpoint ", found->manifest.number(), " of job '", found->manifest.job().name(),
      "': resume from it with --resume, or choose another directory"));
}

}  // namespace

uint64_t RunStart::version() const {
  uint64_t highest = 0;
  if (!checkpoint) return highest;
  for (const v1::SavedShard& shard : checkpoint->shards()) highest = std::max(highest, shard.version());
  return highest;
}

absl::StatusOr<RunStart> GoBack(const std::string& directory, const v1::Job& job, const v1::RunRecord& record,
                                const RunLoss& loss) {
  RunStart start;
  absl::StatusOr<v1::Manifest> checkpoint = TakeLatest(directory, job);
  if (checkpoint.ok()) {
    start.checkpoint = *std::move(checkpoint);
  } else if (!absl::IsNotFound(checkpoint.status())) {
    return checkpoint.status();
  } else {
    RETURN_IF_ERROR(DeleteIncomplete(directory, checkpoint.status()));
  }
  start.record = record;
  start.record.set_recoveries(record.recoveries() + 1);
  start.loss = loss;
  LOG(WARNING) << loss.process << " was lost: the job goes back to " << Place(start.checkpoint_number());
  return start;
}

absl::StatusOr<std::optional<v1::RunRecord>> UnfinishedRun(const std::string& directory, const v1::Job& job) {
  ASSIGN_OR_RETURN(const v1::RunRecord record, ReadOrEmpty(directory));
  if (!HasNotEnded(record, job)) return std::nullopt;
  return record;
}

absl::StatusOr<std::optional<v1::RunRecord>> EndedRun(const std::string& directory, const v1::Job& job) {
  ASSIGN_OR_RETURN(const v1::RunRecord record, ReadOrEmpty(directory));
  const bool ended = record.ended() && !record.phase().empty();
  if (!ended || record.job_fingerprint() != JobFingerprint(job)) return std::nullopt;
  return record;
}

absl::StatusOr<std::optional<v1::RunRecord>> UntoldEnd(const std::string& directory, const v1::Job& job) {
  ASSIGN_OR_RETURN(const std::optional<v1::RunRecord> record, EndedRun(directory, job));
  return record && !record->told() ? record : std::nullopt;
}

absl::StatusOr<RunStart> StartJob(const std::string& directory, const v1::Job& job, bool resume) {
  RunStart start;
  if (directory.empty()) return start;
  ASSIGN_OR_RETURN(const v1::RunRecord record, ReadOrEmpty(directory));
  if (HasNotEnded(record, job)) {
    return GoBack(directory, job, record,
                  {.process = "the master", .evaluators = static_cast<int>(record.evaluators())});
  }
  if (!resume) {
    RETURN_IF_ERROR(CheckHasNoCheckpoint(directory));
    return start;
  }
  ASSIGN_OR_RETURN(start.checkpoint, TakeLatest(directory, job));
  start.record = record;
  return start;
}

}  // namespace catchment
