// One shard of a checkpoint: its weights, its optimizer's state and what it knows of its blocks and workers,
// in one safetensors file (proto/checkpoint.proto, ShardState).
#ifndef CATCHMENT_COMMON_CHECKPOINT_SHARD_FILE_H_
#define CATCHMENT_COMMON_CHECKPOINT_SHARD_FILE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/safetensors.h"
#include "common/parameter_layout.h"
#include "proto/checkpoint.pb.h"

namespace catchment {

// Values state.begin .. state.end-1 of one flat vector: "weights", or one named by StateTensorName.
struct ShardTensor {
  std::string name;
  absl::Span<const float> values;
};

// Returns the name in a file of the vector that the update rule calls `state`: "state.momentum_buffer".
inline std::string StateTensorName(const std::string& state) { return "state." + state; }

// Saves shard `shard` of `num_shards` as a part of checkpoint `number` in `dir`, whose directory is made if
// need be; state.checkpoint need not be set. Returns what the manifest says of it. An error leaves no file
// behind. A new save takes a number above all of ListCheckpoints(dir): older files may have a manifest. `after_part`:
// as for WriteSafetensors.
absl::StatusOr<v1::SavedShard> WriteShard(const std::string& dir, uint64_t number, int shard, int num_shards,
                                          v1::ShardState state, const std::vector<ShardTensor>& tensors,
                                          const std::function<void()>& after_part = {});

// Updates that all its blocks have seen: the lowest of their versions.
uint64_t ShardVersion(const v1::ShardState& state);

// The values of one of its blocks, in the flat vector. `state` is of a ShardFile.
Range BlockRange(const v1::ShardState& state, int block);

// A saved shard, open.
struct ShardFile {
  std::unique_ptr<SafetensorsFile> file;
  v1::ShardState state;
};

// InvalidArgument when the file is no shard, DataLoss when its state does not agree with its tensors.
absl::StatusOr<ShardFile> OpenShard(const std::string& path);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_SHARD_FILE_H_
