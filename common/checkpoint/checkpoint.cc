#include "common/checkpoint/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <regex>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/atomic_file.h"
#include "common/base/file_access.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/worker_file.h"
#include "glog/logging.h"

namespace catchment {
namespace {

Range Overlap(Range a, Range b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

Range RangeOf(const v1::ShardState& state) { return {state.begin(), state.end()}; }

// Returns why the shard is not the next one of the checkpoint, which begins at `begin`; empty if it is.
std::string DescribeMismatch(const v1::Manifest& manifest, const v1::SavedShard& saved,
                             const v1::ShardState& state, int64_t begin) {
  if (state.fingerprint() != manifest.fingerprint()) return "is a shard of a different model";
  if (state.checkpoint() != manifest.number()) {
    return absl::StrCat("is a shard of checkpoint ", state.checkpoint());
  }
  if (state.run_id() != manifest.run_id()) {
    return absl::StrCat("belongs to run ", FormatId(state.run_id()), ", but the manifest to run ",
                        FormatId(manifest.run_id()));
  }
  if (ShardVersion(state) != saved.version()) {
    return absl::StrCat("was saved at version ", ShardVersion(state), ", but the manifest says ",
                        saved.version());
  }
  if (state.begin() != begin) return absl::StrCat("begins at parameter ", state.begin(), ", not ", begin);
  return "";
}

absl::Status CheckRange(const v1::Manifest& manifest, Range range) {
  if (0 <= range.begin && range.begin <= range.end && range.end <= CountParameters(manifest)) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(absl::StrCat("checkpoint ", manifest.number(), " has ",
                                            CountParameters(manifest), " parameters; ", range.begin, " .. ",
                                            range.end, " were requested"));
}

// Returns true if `status`, of reading a checkpoint, says that its files are missing or damaged, and not that
// they could not be read at the moment.
bool IsUnusable(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsDataLoss(status) || absl::IsInvalidArgument(status);
}

enum class Depth { kHeaders, kChecksums };

absl::StatusOr<v1::Manifest> ReadComplete(const std::string& dir, uint64_t number, Depth depth) {
  ASSIGN_OR_RETURN(const auto manifest, ReadManifest(dir, number));
  ASSIGN_OR_RETURN(const auto shards, OpenShards(dir, manifest));
  if (depth == Depth::kHeaders) return manifest;
  for (const ShardFile& shard : shards) {
    RETURN_IF_ERROR(shard.file->VerifyChecksums());
  }
  return manifest;
}

absl::Status VerifyWorkerStates(const std::string& dir, const v1::Manifest& manifest) {
  for (uint32_t worker : manifest.master().worker_states()) {
    RETURN_IF_ERROR(VerifyWorkerState(dir, manifest.number(), worker));
  }
  return absl::OkStatus();
}

// Returns an unused path in the same directory for checkpoint `number`.
std::string UnusablePath(const std::string& dir, uint64_t number) {
  const std::string base = absl::StrCat(CheckpointDirectory(dir, number), ".unusable");
  std::string path = base;
  std::error_code error;
  for (int i = 2; std::filesystem::exists(path, error); ++i) path = absl::StrCat(base, "-", i);
  return path;
}

// Deletes the files of a checkpoint, and its manifest first, so that a partly deleted checkpoint does not
// count as complete. The directory remains if it has files of others.
absl::Status DeleteFiles(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path + "/manifest.textproto", error);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (IsCheckpointFile(entry.path().filename().string())) files.push_back(entry.path());
  }
  for (const std::filesystem::path& file : files) {
    if (!error) std::filesystem::remove(file, error);
  }
  if (error && error != std::errc::no_such_file_or_directory)
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot delete ", path));
  if (rmdir(path.c_str()) == 0 || errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST ||
      errno == ENOTDIR)
    return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot delete ", path));
}

absl::Status Delete(const std::string& dir, uint64_t number) {
  return DeleteFiles(CheckpointDirectory(dir, number));
}

// Raises the counters in `state` to those of `saved`, and takes its momentum if it is newer, because a
// measured momentum cannot be combined from several blocks.
void Raise(const v1::BlockState& saved, v1::BlockState* state) {
  if (saved.has_momentum() && (!state->has_momentum() || saved.version() > state->version())) {
    *state->mutable_momentum() = saved.momentum();
  }
  state->set_version(std::max(state->version(), saved.version()));
  // The two add up to what a block has received, which blocks with other late contributions share out
  // differently.
  const uint64_t received = state->samples() + state->late_samples();
  if (saved.samples() + saved.late_samples() > received) {
    state->set_samples(saved.samples());
    state->set_late_samples(saved.late_samples());
  }
  state->set_optimizer_steps(std::max(state->optimizer_steps(), saved.optimizer_steps()));
  state->set_compensation_begin(std::max(state->compensation_begin(), saved.compensation_begin()));
}

// Returns true for checkpoint-NUMBER and those that were set aside (UnusablePath).
bool IsCheckpointName(const std::string& name) {
  static const std::regex kName("checkpoint-[0-9]+(\\.unusable(-[0-9]+)?)?");
  return std::regex_match(name, kName);
}

}  // namespace

absl::Status DeleteAllCheckpoints(const std::string& dir) {
  std::error_code error;
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    if (!entry.is_symlink(error) && IsCheckpointName(entry.path().filename().string()))
      found.push_back(entry.path());
  }
  for (const std::filesystem::path& path : found) {
    RETURN_IF_ERROR(DeleteFiles(path.string()));
  }
  if (ReadRunRecord(dir).ok()) RETURN_IF_ERROR(DeleteRunRecord(dir));
  RemoveTemporaries(dir);
  return absl::OkStatus();
}

absl::StatusOr<FoundCheckpoint> FindLatest(const std::string& dir) {
  ASSIGN_OR_RETURN(const auto numbers, ListCheckpoints(dir));
  FoundCheckpoint found;
  std::optional<v1::Manifest> without_workers;  // the newest that has all weights
  for (uint64_t number : numbers) {
    auto manifest = ReadComplete(dir, number, Depth::kChecksums);
    const absl::Status status = manifest.ok() ? VerifyWorkerStates(dir, *manifest) : manifest.status();
    if (status.ok()) {
      found.manifest = *std::move(manifest);
      return found;
    }
    if (!IsUnusable(status)) {
      return absl::Status(
          status.code(),
          absl::StrCat(
              "checkpoint ", number, " in ", dir, " cannot be read: ", status.message(),
              "; make it readable and try again, or move it away to continue from an older checkpoint"));
    }
    if (manifest.ok() && !without_workers) without_workers = *std::move(manifest);
    found.warnings.push_back(absl::StrCat("skipped checkpoint ", number, ": ", status.message()));
  }
  if (without_workers) {
    found.warnings.push_back(
        absl::StrCat("no checkpoint has the states of all workers; continuing from checkpoint ",
                     without_workers->number()));
    found.manifest = *std::move(without_workers);
    return found;
  }
  return absl::NotFoundError(absl::StrCat("there is no checkpoint to resume from in ", dir,
                                          found.warnings.empty() ? "" : "\n",
                                          absl::StrJoin(found.warnings, "\n")));
}

absl::StatusOr<std::vector<std::string>> SetAsideNewerThan(const std::string& dir, uint64_t number) {
  ASSIGN_OR_RETURN(const auto numbers, ListCheckpoints(dir));
  std::vector<std::string> lines;
  for (uint64_t other : numbers) {
    if (other <= number) continue;
    if (absl::IsNotFound(ReadManifest(dir, other).status())) {
      RETURN_IF_ERROR(Delete(dir, other));
      lines.push_back(absl::StrCat("checkpoint ", other, " was never complete and has been deleted"));
      continue;
    }
    const std::string path = UnusablePath(dir, other);
    std::error_code error;
    std::filesystem::rename(CheckpointDirectory(dir, other), path, error);
    if (error) {
      return absl::ErrnoToStatus(error.value(),
                                 absl::StrCat("cannot rename ", CheckpointDirectory(dir, other)));
    }
    lines.push_back(
        absl::StrCat("checkpoint ", other, " is damaged or incomplete and has been renamed to ", path));
  }
  return lines;
}

absl::StatusOr<std::vector<ShardFile>> OpenShards(const std::string& dir, const v1::Manifest& manifest) {
  std::vector<ShardFile> shards;
  int64_t begin = 0;
  for (const v1::SavedShard& saved : manifest.shards()) {
    ASSIGN_OR_RETURN(const auto path, PathWithin(CheckpointDirectory(dir, manifest.number()), saved.file()));
    ASSIGN_OR_RETURN(auto shard, OpenShard(path));
    const std::string mismatch = DescribeMismatch(manifest, saved, shard.state, begin);
    if (!mismatch.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(shard.file->path(), ": ", mismatch));
    }
    begin = shard.state.end();
    shards.push_back(std::move(shard));
  }
  if (begin == CountParameters(manifest)) return shards;
  return absl::InvalidArgumentError(
      absl::StrCat(CheckpointDirectory(dir, manifest.number()), ": its shards contain ", begin,
                   " parameters, but its model has ", CountParameters(manifest)));
}

absl::Status ReadParameters(const std::string& dir, const v1::Manifest& manifest, Range range,
                            const std::string& tensor, float* out) {
  RETURN_IF_ERROR(CheckRange(manifest, range));
  ASSIGN_OR_RETURN(const auto shards, OpenShards(dir, manifest));
  for (const ShardFile& shard : shards) {
    const Range part = Overlap(range, RangeOf(shard.state));
    if (part.size() <= 0) continue;
    RETURN_IF_ERROR(shard.file->Read(tensor, part.begin - shard.state.begin(), part.size(),
                                     out + (part.begin - range.begin)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::BlockState>> ReadBlockStates(const std::string& dir,
                                                            const v1::Manifest& manifest,
                                                            absl::Span<const Range> blocks) {
  if (blocks.empty()) return std::vector<v1::BlockState>();
  RETURN_IF_ERROR(CheckRange(manifest, {blocks.front().begin, blocks.back().end}));
  ASSIGN_OR_RETURN(const auto shards, OpenShards(dir, manifest));
  std::vector<v1::BlockState> states(blocks.size());
  for (const ShardFile& shard : shards) {
    for (int saved = 0; saved < shard.state.blocks_size(); ++saved) {
      const Range range = BlockRange(shard.state, saved);
      const auto first = std::partition_point(blocks.begin(), blocks.end(),
                                              [&](const Range& block) { return block.end <= range.begin; });
      for (auto block = first; block != blocks.end() && block->begin < range.end; ++block) {
        Raise(shard.state.blocks(saved), &states[block - blocks.begin()]);
      }
    }
  }
  return states;
}

absl::Status CheckSameModel(const std::string& dir, const v1::Manifest& manifest,
                            const std::vector<TensorSpec>& tensors) {
  const std::string difference = DescribeDifference(tensors, ManifestTensors(manifest));
  if (difference.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      CheckpointDirectory(dir, manifest.number()), " belongs to a different model, that of job \"",
      manifest.job().name(), "\": ", difference, "; use that job's model, or another directory"));
}

absl::Status Prune(const std::string& dir, int keep) {
  CHECK_GE(keep, 1);
  ASSIGN_OR_RETURN(const auto numbers, ListCheckpoints(dir));
  int complete = 0;
  std::vector<std::string> problems;
  for (uint64_t number : numbers) {
    const bool is_complete = complete < keep && ReadComplete(dir, number, Depth::kHeaders).ok();
    if (is_complete) ++complete;
    if (is_complete || complete == 0) continue;
    const absl::Status status = Delete(dir, number);
    if (!status.ok()) problems.push_back(std::string(status.message()));
  }
  if (!problems.empty()) return absl::UnavailableError(absl::StrJoin(problems, "\n"));
  return SyncDirectory(dir);
}

}  // namespace catchment
