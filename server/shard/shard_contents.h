// The initial contents of a shard.
#ifndef CATCHMENT_SERVER_SHARD_SHARD_CONTENTS_H_
#define CATCHMENT_SERVER_SHARD_SHARD_CONTENTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/parameter_layout.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "server/shard/block_image.h"
#include "server/shard/push_ledger.h"

namespace catchment {

// Returns `count` vectors of `size` zeros. Each is made in its place: the memory of a vector that they were
// copied from would stay with the process.
inline std::vector<std::vector<float>> ZeroVectors(size_t count, size_t size) {
  std::vector<std::vector<float>> vectors;
  vectors.reserve(count);
  while (vectors.size() < count) vectors.emplace_back(size);
  return vectors;
}

struct ShardContents {
  std::vector<float> weights;
  std::vector<std::vector<float>> states;  // none: zeros
  std::vector<v1::BlockState> blocks;      // none: version 0
  uint64_t checkpoint = 0;                 // the source; 0: none

  // Only of a shard that is restored from its standby. Then `checkpoint` is the last one that was taken.
  bool may_take_again = false;     // the blocks are still at the versions of the checkpoint
  std::vector<BlockImage> images;  // without weights and states
  std::map<uint32_t, PushLedger> ledgers;
  uint64_t bytes_pushed = 0;
  uint64_t bytes_pulled = 0;
};

// Returns the initial contents of a shard: the job's initial weights, or, with `resumed`, the checkpoint's.
// Errors: those of reading the checkpoint.
absl::StatusOr<ShardContents> MakeContents(const v1::Job& job, const ParameterLayout& layout, int index,
                                           const std::string& checkpoint_dir, const v1::Manifest* resumed);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_SHARD_CONTENTS_H_
