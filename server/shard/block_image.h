// A copy of a block with everything that a shard needs in order to continue with it.
#ifndef CATCHMENT_SERVER_SHARD_BLOCK_IMAGE_H_
#define CATCHMENT_SERVER_SHARD_BLOCK_IMAGE_H_

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "absl/strings/cord.h"
#include "proto/checkpoint.pb.h"
#include "proto/standby.pb.h"

namespace catchment {

// Vectors are float32 values, as they were received; copies of a Cord share its memory.
struct BlockImage {
  struct Accepted {
    v1::AcceptedContribution contribution;
    absl::Cord values;
    absl::Cord sent;  // weights that it was computed with, if the rule needs them; empty: none
  };

  struct GroupUpdate {
    absl::Cord before;  // weights
    uint32_t contributions = 0;
  };

  v1::BlockState state;
  std::vector<uint64_t> group_bases;
  absl::Cord weights;
  std::vector<absl::Cord> states;
  std::deque<Accepted> accepted;                          // in order of arrival
  std::map<uint32_t, absl::Cord> sent;                    // weights, by worker
  std::map<uint32_t, v1::FinishedPush> finished;          // by worker; with a staleness bound
  std::map<uint32_t, GroupUpdate> group_updates;          // by group
  std::map<uint64_t, v1::MomentumPoint> momentum_points;  // by version
};

// Copies a vector to memory of its size.
inline void CopyVector(const absl::Cord& vector, float* values) {
  char* to = reinterpret_cast<char*>(values);
  for (const absl::string_view chunk : vector.Chunks()) {
    std::memcpy(to, chunk.data(), chunk.size());
    to += chunk.size();
  }
}

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_BLOCK_IMAGE_H_
