// Complete checkpoints: finds the newest usable one, reads any part of its parameters, and deletes old ones.
// See proto/checkpoint.proto for the format, and shard_file.h and manifest.h for writing.
//
// A checkpoint can be read with any number of servers and any block size, because parameters are requested by
// their range in the flat vector.
// Errors: name the checkpoint or file.
// Threads: safe; the functions keep no state between calls.
#ifndef CATCHMENT_COMMON_CHECKPOINT_CHECKPOINT_H_
#define CATCHMENT_COMMON_CHECKPOINT_CHECKPOINT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/shard_file.h"
#include "common/job/parameter_layout.h"
#include "proto/checkpoint.pb.h"

namespace catchment {

struct FoundCheckpoint {
  v1::Manifest manifest;
  // Newer checkpoints that cannot be used, with the reasons; one line each, for the log.
  std::vector<std::string> warnings;
};

// Returns the newest complete checkpoint in `dir` whose files are intact according to all checksums. Skips
// incomplete and damaged checkpoints. If none has the states of all workers that it should have, returns the
// newest that is intact otherwise: a job may continue from its weights alone.
// Errors: NotFound if there is none; the message names `dir` and the problem of each checkpoint. If a newer
// checkpoint cannot be read at the moment (no permission, an I/O error, too many open files), returns that
// error: the checkpoint may be intact, and the job must not continue from an older one.
absl::StatusOr<FoundCheckpoint> FindLatest(const std::string& dir);

// Renames the checkpoints in `dir` with a higher number than `number` to checkpoint-N.unusable (or
// .unusable-2 and so on), so that they do not collide with those of a job that continues from `number`.
// Deletes those without a manifest, which were never complete. Returns one line for each, for the log.
absl::StatusOr<std::vector<std::string>> SetAsideNewerThan(const std::string& dir, uint64_t number);

// Opens all shards, by index, and checks that they belong to `manifest` and together contain every parameter
// once. Does not verify the checksums of tensors. Used to read the states of shards.
absl::StatusOr<std::vector<ShardFile>> OpenShards(const std::string& dir, const v1::Manifest& manifest);

// Reads values range.begin .. range.end-1 of the flat vector `tensor`, "weights" or StateTensorName(...), to
// out[0 .. size-1]. Verifies the checksums of saved shards that are read completely. NotFound if the
// checkpoint has no such tensor (for example, one of another optimizer), OutOfRange for a range beyond the
// model.
absl::Status ReadParameters(const std::string& dir, const v1::Manifest& manifest, Range range,
                            const std::string& tensor, float* out);

// Returns, for each of `blocks`, which are ascending, the highest version and optimizer_steps of the saved
// blocks that it overlaps, the samples and late_samples of the one with the highest sum of them, and the
// momentum of the one with the highest version.
absl::StatusOr<std::vector<v1::BlockState>> ReadBlockStates(const std::string& dir,
                                                            const v1::Manifest& manifest,
                                                            absl::Span<const Range> blocks);

// Returns FailedPrecondition, naming the first difference, if the checkpoint belongs to a different model.
absl::Status CheckSameModel(const std::string& dir, const v1::Manifest& manifest,
                            const std::vector<TensorSpec>& tensors);

// Deletes complete checkpoints except the newest `keep`, and incomplete ones older than the newest complete
// one. Newer incomplete checkpoints are kept, because they may be in progress. `keep` is at least 1.
absl::Status Prune(const std::string& dir, int keep);

// Deletes all checkpoints, those that were set aside, and the record of the job. Files of other programs
// remain.
absl::Status DeleteAllCheckpoints(const std::string& dir);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_CHECKPOINT_H_
