// Whole checkpoints: the newest that can be used, any part of its parameters, and deleting old ones.
// Format: proto/checkpoint.proto; writing: shard_file.h, manifest.h.
//
// A checkpoint of S shards can be read for any other number of servers: parameters are asked for by their
// range in the flat vector, and block sizes may differ.
// Errors: name the checkpoint or file.
// Threads: all functions may run at any time; nothing is kept between calls.
#ifndef CATCHMENT_COMMON_CHECKPOINT_CHECKPOINT_H_
#define CATCHMENT_COMMON_CHECKPOINT_CHECKPOINT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/shard_file.h"
#include "common/parameter_layout.h"
#include "proto/checkpoint.pb.h"

namespace catchment {

struct FoundCheckpoint {
  v1::Manifest manifest;
  // Newer ones that cannot be used, and why; a line each, for the log.
  std::vector<std::string> warnings;
};

// Returns the newest complete checkpoint in `dir` whose files are sound, every checksum compared. Skips those
// that are incomplete or damaged.
// Errors: NotFound when there is none; the message names `dir` and what was wrong with each. The error of
// reading where a newer checkpoint cannot be read now (no permission, an I/O error, too many open files): it
// may be sound, and the job must not continue from an older one.
absl::StatusOr<FoundCheckpoint> FindLatest(const std::string& dir);

// Renames the checkpoints in `dir` with a higher number than `number` to checkpoint-N.unusable (or
// .unusable-2 and so on), so that they are not in the way of a job that continues from `number` and nothing
// is lost. Deletes those that have no manifest: they were never complete. Returns a line for each, for the
// log.
absl::StatusOr<std::vector<std::string>> SetAsideNewerThan(const std::string& dir, uint64_t number);

// Opens all shards, by index, checks that they belong to `manifest` and together hold every parameter once;
// compares no checksums of tensors. For the states (watermarks, statistics, the optimizer's kind, tensors).
absl::StatusOr<std::vector<ShardFile>> OpenShards(const std::string& dir, const v1::Manifest& manifest);

// Values range.begin .. range.end-1 of the flat vector `tensor`, "weights" or StateTensorName(...), to out[0
// .. size-1]. Checksums are compared for saved shards that are read as a whole. NotFound when the checkpoint
// has no such tensor (of another optimizer, say), OutOfRange for a range beyond the model.
absl::Status ReadParameters(const std::string& dir, const v1::Manifest& manifest, Range range,
                            const std::string& tensor, float* out);

// For each of `blocks`, which are ascending: the highest version, samples and optimizer_steps of the saved
// blocks that it overlaps, and the momentum of the one with the highest version.
absl::StatusOr<std::vector<v1::BlockState>> ReadBlockStates(const std::string& dir,
                                                            const v1::Manifest& manifest,
                                                            absl::Span<const Range> blocks);

// FailedPrecondition naming the first difference, when the checkpoint is of another model.
absl::Status CheckSameModel(const std::string& dir, const v1::Manifest& manifest,
                            const std::vector<TensorSpec>& tensors);

// Deletes complete checkpoints but the newest `keep`, and incomplete ones older than the newest complete one.
// Newer incomplete ones may be under way, and stay. `keep` is at least 1.
absl::Status Prune(const std::string& dir, int keep);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_CHECKPOINT_H_
