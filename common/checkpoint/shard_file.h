// One shard of a checkpoint in a safetensors file: its weights, its optimizer's state, and the state of its
// blocks and workers (proto/checkpoint.proto, ShardState).
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
#include "common/job/parameter_layout.h"
#include "proto/checkpoint.pb.h"

namespace catchment {

// Values state.begin .. state.end-1 of a flat vector: "weights", or one named by StateTensorName.
struct ShardTensor {
  std::string name;
  absl::Span<const float> values;
};

// Returns the name in files of the update rule's vector `state`, such as "state.momentum_buffer".
inline std::string StateTensorName(const std::string& state) { return "state." + state; }

// Saves shard `shard` of `num_shards` as a part of checkpoint `number` in `dir`, and creates its directory if
// necessary; state.checkpoint need not be set. Returns the shard's entry in the manifest. An error leaves no
// file behind. `number` must be above all of ListCheckpoints(dir), because older files may have a manifest.
// `after_part` is passed to WriteSafetensors.
absl::StatusOr<v1::SavedShard> WriteShard(const std::string& dir, uint64_t number, int shard, int num_shards,
                                          v1::ShardState state, const std::vector<ShardTensor>& tensors,
                                          const std::function<void()>& after_part = {});

// Returns the lowest version of the shard's blocks.
uint64_t ShardVersion(const v1::ShardState& state);

// Adds each worker's settled and begun steps in the shard's state to the shard's entry in a report.
void AddSteps(const v1::ShardState& state, v1::SavedShard* saved);

// Returns the range of a block in the flat vector. `state` must be that of a ShardFile.
Range BlockRange(const v1::ShardState& state, int block);

// An open file of a shard.
struct ShardFile {
  std::unique_ptr<SafetensorsFile> file;
  v1::ShardState state;
};

// Opens a shard. InvalidArgument if the file is not a shard, DataLoss if its state does not match its
// tensors.
absl::StatusOr<ShardFile> OpenShard(const std::string& path);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_SHARD_FILE_H_
