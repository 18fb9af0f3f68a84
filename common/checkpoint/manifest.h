// The files of a checkpoint, and its manifest (proto/checkpoint.proto).
//
//   DIR/checkpoint-12/shard-0-of-2.safetensors
//   DIR/checkpoint-12/shard-1-of-2.safetensors
//   DIR/checkpoint-12/manifest.textproto         written last: without it the checkpoint is not complete
//
// The last line of the manifest is a comment with the CRC-32 of all lines before it, because a truncated text
// may be valid.
#ifndef CATCHMENT_COMMON_CHECKPOINT_MANIFEST_H_
#define CATCHMENT_COMMON_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/parameter_layout.h"
#include "proto/checkpoint.pb.h"

namespace catchment {

// Returns "DIR/checkpoint-12".
std::string CheckpointDirectory(const std::string& dir, uint64_t number);

// Returns "shard-0-of-2.safetensors".
std::string ShardFileName(int shard, int num_shards);

// Returns true for the name of a file that is written to checkpoint-NUMBER.
bool IsCheckpointFile(const std::string& name);

// Returns the numbers of the directories checkpoint-NUMBER in `dir`, complete or not, the newest (highest)
// first. Those that have only files of other programs, which use the same names, are left out. NotFound if
// `dir` does not exist.
absl::StatusOr<std::vector<uint64_t>> ListCheckpoints(const std::string& dir);

// Completes checkpoint manifest.number(), all shards of which must be saved.
absl::Status WriteManifest(const std::string& dir, const v1::Manifest& manifest);

// Reads a manifest and checks that it is consistent; does not read the shards' files. NotFound if there is no
// manifest, so that the checkpoint is not complete; DataLoss if it is damaged.
absl::StatusOr<v1::Manifest> ReadManifest(const std::string& dir, uint64_t number);

std::vector<TensorSpec> ManifestTensors(const v1::Manifest& manifest);

// Returns the size of the flat parameter vector. `manifest` must come from ReadManifest.
int64_t CountParameters(const v1::Manifest& manifest);

// Replaces the record; creates `dir` if necessary.
absl::Status WriteRunRecord(const std::string& dir, const v1::RunRecord& record);

// Deletes the record, which must exist.
absl::Status DeleteRunRecord(const std::string& dir);

// Reads the record. NotFound if there is none; InvalidArgument if the file is not a record.
absl::StatusOr<v1::RunRecord> ReadRunRecord(const std::string& dir);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_MANIFEST_H_
