// The copy of a shard that its standby keeps, made of an image and the changes after it
// (proto/standby.proto).
//
// The weights and the states are copied and not computed again, so the copy has the bits of the original for
// every algorithm and on every processor.
//
// Threads: not safe.
#ifndef CATCHMENT_SERVER_SHARD_REPLICA_H_
#define CATCHMENT_SERVER_SHARD_REPLICA_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "common/job/parameter_layout.h"
#include "proto/job.pb.h"
#include "proto/standby.pb.h"
#include "server/shard/block_image.h"
#include "server/shard/push_ledger.h"
#include "server/shard/shard_contents.h"

namespace catchment {

// An image with the changes after it.
struct ReplicaImage {
  v1::CheckpointTaken checkpoint;
  std::map<uint32_t, PushLedger> ledgers;  // by worker
  std::vector<BlockImage> blocks;
  uint64_t bytes_pushed = 0;
  uint64_t bytes_pulled = 0;
  // For shard 0: StandbyPart.master and StandbyPart.evaluations; empty: none.
  std::string master;
  std::string evaluations;
};

// Passes the master's state, a StandbyPart.master or .evaluations, to `send` in parts that every server
// accepts as messages. The last one has the number of `state`. Returns false as soon as `send` does.
bool SendInParts(const v1::StandbyPart& state, absl::FunctionRef<bool(const v1::StandbyPart&)> send);

class Replica {
 public:
  // Makes an empty replica of shard `index` of the layout, which must outlive it.
  Replica(const v1::Job& job, const ParameterLayout& layout, int index);

  // Prepares for another stream of parts, which begins with an image. The present image remains until the
  // next one is complete.
  void BeginStream();
  // Adds the next part of a stream. InvalidArgument if it does not fit: the stream must end.
  absl::Status Add(v1::StandbyPart part);
  // Does the same for a part that is a vector, and keeps its memory.
  void AddVector(absl::Cord vector) { vectors_.push_back(std::move(vector)); }

  // Returns true if there is a complete image.
  bool complete() const { return current_.has_value(); }
  // Returns true while an image is incomplete.
  bool receives_image() const { return arriving_.has_value(); }
  // Returns the number of the last change in the complete image.
  uint64_t number() const { return number_; }

  // Passes the parts of the image to `send`, until it returns false.
  void Export(absl::FunctionRef<bool(const v1::StandbyPart&)> send) const;

  // Return StandbyPart.master and StandbyPart.evaluations of the image, which must be complete; empty: none.
  const std::string& master() const { return current_->master; }
  const std::string& evaluations() const { return current_->evaluations; }
  // Returns what a shard continues with. The image must be complete, and is moved away.
  ShardContents TakeContents();

 private:
  absl::Status AddLedger(const v1::WorkerLedger& ledger);
  absl::Status Complete(uint64_t number);
  absl::Status AddState(v1::StandbyPart part);
  absl::Status AddBlock(const v1::BlockChange& change, ReplicaImage* image);
  absl::Status CheckWorkers(const v1::BlockChange& change) const;
  absl::Status CheckVectors(const v1::BlockChange& change) const;
  void Record(const v1::Settlement& settlement, uint32_t block, ReplicaImage* image) const;
  // Removes and returns the oldest vector that was received.
  absl::Cord NextVector();

  const ParameterLayout& layout_;
  const int index_;
  const size_t num_states_;
  const bool bounded_;  // by staleness
  std::optional<ReplicaImage> arriving_;
  uint64_t ledgers_left_ = 0;  // of the arriving image, before its first block
  std::optional<ReplicaImage> current_;
  uint64_t number_ = 0;
  std::deque<absl::Cord> vectors_;  // that precede the next block
  v1::StandbyPart state_;           // the first bytes of a state of the master; not set: none
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_REPLICA_H_
