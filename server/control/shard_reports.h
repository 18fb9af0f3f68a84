// The last report of each shard, and sums over all of them. The sums over shards and workers are updated with
// each report, so that reading them is cheap for any number of shards and workers.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_SHARD_REPORTS_H_
#define CATCHMENT_SERVER_CONTROL_SHARD_REPORTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "common/measures/staleness.h"
#include "proto/master.pb.h"
#include "proto/wire.pb.h"

namespace catchment {

class ShardReports {
 public:
  explicit ShardReports(int num_shards) : reports_(num_shards) {}

  // Records a report. Statistics that it leaves out keep their values. Errors: InvalidArgument if the job has
  // no such shard; FailedPrecondition if the version is lower than in the previous report, because the shard
  // has lost updates.
  absl::Status Update(const v1::ShardReport& report);
  // Forgets the shard's report, because another process has replaced it.
  void Forget(uint32_t shard);

  bool all_reported() const;
  // Return the lowest values over all shards, 0 until all have reported.
  uint64_t lowest_generation() const;
  uint64_t lowest_version() const;
  uint64_t highest_version() const;
  // Returns the payload bytes that all shards have received.
  uint64_t bytes_pushed() const;
  // Returns the first error, such as "server 1: no space left on device"; empty if saving did not fail.
  std::string save_error() const;

  // Return the staleness over all shards, of all workers and of one.
  const StalenessDistribution& staleness() const { return staleness_; }
  const StalenessDistribution& StalenessOf(uint32_t worker) const;

  // Fills the shards, their sums, and the staleness of all workers that the status has already.
  void Fill(v1::JobStatus* status) const;

  // Returns the last report of each shard, if any, without its marks (see push_marks.h).
  const std::vector<std::optional<v1::ShardReport>>& reports() const { return reports_; }

 private:
  using Workers = google::protobuf::RepeatedPtrField<v1::WorkerStatistics>;

  // Replaces `before` by `after` in the sums.
  void ReplaceStatistics(const Workers& before, const Workers& after);

  std::vector<std::optional<v1::ShardReport>> reports_;
  StalenessDistribution staleness_;
  std::unordered_map<uint32_t, StalenessDistribution> staleness_of_workers_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_SHARD_REPORTS_H_
