// What the shards last said of themselves.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_SHARD_BOARD_H_
#define CATCHMENT_SERVER_MASTER_SHARD_BOARD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/wire.pb.h"
#include "server/master/staleness.h"

namespace catchment {

class ShardBoard {
 public:
  explicit ShardBoard(int num_shards) : reports_(num_shards) {}

  // InvalidArgument for a shard that the job has not; FailedPrecondition where the version is lower than that
  // of the report before: the shard has lost updates.
  absl::Status Update(const v1::ShardReport& report);
  // Takes back what the shard has reported: another process will report for it.
  void Forget(uint32_t shard);

  bool all_reported() const;
  // The lowest over all shards, 0 until all have reported.
  uint64_t lowest_generation() const;
  uint64_t lowest_version() const;
  uint64_t highest_version() const;
  // "server 1: no space left on device"; empty when saving did not fail.
  std::string save_error() const;

  // Of one worker, or of all.
  StalenessDistribution Staleness(std::optional<uint32_t> worker) const;

  // By shard; nothing where none has come.
  const std::vector<std::optional<v1::ShardReport>>& reports() const { return reports_; }

 private:
  std::vector<std::optional<v1::ShardReport>> reports_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_SHARD_BOARD_H_
