// What the shards last said of themselves, and what it adds up to. The sums over shards and workers are kept
// up to date report by report: asking for them costs nothing, however many shards and workers there are.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_SHARD_BOARD_H_
#define CATCHMENT_SERVER_MASTER_SHARD_BOARD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "common/staleness.h"
#include "proto/wire.pb.h"

namespace catchment {

class ShardBoard {
 public:
  explicit ShardBoard(int num_shards) : reports_(num_shards) {}

  // InvalidArgument for a shard that the job has not; FailedPrecondition where the version is lower than that
  // of the report before: the shard has lost updates. Statistics that a report leaves out stay as they were.
  absl::Status Update(const v1::ShardReport& report);
  // Takes back what the shard has reported: another process will report for it.
  void Forget(uint32_t shard);

  bool all_reported() const;
  // The lowest over all shards, 0 until all have reported.
  uint64_t lowest_generation() const;
  uint64_t lowest_version() const;
  uint64_t highest_version() const;
  // Payload bytes that all shards have taken.
  uint64_t bytes_pushed() const;
  // "server 1: no space left on device"; empty when saving did not fail.
  std::string save_error() const;

  // Over all shards, of all workers and of one.
  const StalenessDistribution& staleness() const { return staleness_; }
  const StalenessDistribution& StalenessOf(uint32_t worker) const;

  // By shard, without marks, which server/master/push_marks.h has; nothing where none has come.
  const std::vector<std::optional<v1::ShardReport>>& reports() const { return reports_; }

 private:
  using Workers = google::protobuf::RepeatedPtrField<v1::WorkerStatistics>;

  // Adds what `after` has and `before` has not, and takes back the opposite.
  void Account(const Workers& before, const Workers& after);

  std::vector<std::optional<v1::ShardReport>> reports_;
  StalenessDistribution staleness_;
  std::unordered_map<uint32_t, StalenessDistribution> staleness_of_workers_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_SHARD_BOARD_H_
