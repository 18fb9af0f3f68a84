// Where a checkpoint's files are, and its manifest (proto/checkpoint.proto).
//
//   DIR/checkpoint-12/shard-0-of-2.safetensors
//   DIR/checkpoint-12/shard-1-of-2.safetensors
//   DIR/checkpoint-12/manifest.textproto         written last: without it the checkpoint is not complete
//
// The manifest's last line is a comment with the CRC-32 of all lines before it, since a text that was cut
// short may well parse.
#ifndef CATCHMENT_COMMON_CHECKPOINT_MANIFEST_H_
#define CATCHMENT_COMMON_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/parameter_layout.h"
#include "proto/checkpoint.pb.h"

namespace catchment {

// "DIR/checkpoint-12"
std::string CheckpointDirectory(const std::string& dir, uint64_t number);

// "shard-0-of-2.safetensors"
std::string ShardFileName(int shard, int num_shards);

// Numbers of the directories checkpoint-NUMBER in `dir`, complete or not, the newest (highest) first.
// NotFound when there is no `dir`.
absl::StatusOr<std::vector<uint64_t>> ListCheckpoints(const std::string& dir);

// Makes checkpoint manifest.number() complete. Call it when all its shards are saved.
absl::Status WriteManifest(const std::string& dir, const v1::Manifest& manifest);

// NotFound when there is no manifest: the checkpoint is not complete. DataLoss when it is damaged. What it
// says of tensors and shards agrees with itself; the shards' files are not looked at.
absl::StatusOr<v1::Manifest> ReadManifest(const std::string& dir, uint64_t number);

std::vector<TensorSpec> ManifestTensors(const v1::Manifest& manifest);

// Values in the flat vector of parameters. `manifest` is one of ReadManifest.
int64_t CountParameters(const v1::Manifest& manifest);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_MANIFEST_H_
