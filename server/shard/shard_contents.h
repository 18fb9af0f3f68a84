// The initial contents of a shard.
#ifndef CATCHMENT_SERVER_SHARD_SHARD_CONTENTS_H_
#define CATCHMENT_SERVER_SHARD_SHARD_CONTENTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "proto/checkpoint.pb.h"
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

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_SHARD_CONTENTS_H_
