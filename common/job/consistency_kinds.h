// The kinds of consistency (proto/job.proto, Consistency): one entry in a table states everything that
// validation, defaults, explanations and predictions need to know about a kind. When updates are made is in
// server/shard/gate.h, which follows the facts of the table.
//
// To add a kind: a message in Consistency's oneof (proto/job.proto), an entry in consistency_kinds.cc, and,
// unless its facts say all about it, its rule in server/shard/gate.cc.
#ifndef CATCHMENT_COMMON_JOB_CONSISTENCY_KINDS_H_
#define CATCHMENT_COMMON_JOB_CONSISTENCY_KINDS_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "common/job/checks.h"
#include "proto/job.pb.h"

namespace catchment {

struct ConsistencyKind {
  v1::Consistency::KindCase kind;
  // Returns the number of groups whose members wait for each other: 1 for all workers together. Null: 0,
  // since updates are made of contributions in order of arrival.
  uint32_t (*groups)(const v1::Consistency& consistency) = nullptr;
  // Returns the number of members of each group that an update does not wait for. Null: 0.
  uint32_t (*backup_workers)(const v1::Consistency& consistency) = nullptr;
  // Contributions are answered when they arrive, and wait until there are enough of them, from any workers,
  // for an update. Returns how many that are, at least 1, while `workers` train. Null: they do not wait.
  uint32_t (*buffered)(const v1::Consistency& consistency, uint32_t workers) = nullptr;
  // Returns the number of pushes that a worker may be ahead of the slowest one. Null: any number.
  uint32_t (*staleness_bound)(const v1::Consistency& consistency) = nullptr;
  // A contribution may be computed with weights that are not the current ones.
  bool has_staleness = true;
  // Sets the fields that have a default and are not set. `contribution`: the job's, without its defaults.
  void (*fill_defaults)(const v1::Contribution& contribution, v1::Consistency* consistency);
  // Checks a job with this kind whose defaults are filled in. `path`: of the kind, without a point at the
  // end. Null: there is nothing to check.
  void (*check)(const v1::Job& job, const std::string& path, Problems* problems) = nullptr;
  // Returns sentences about who waits for whom in a valid job.
  std::string (*describe)(const v1::Job& job);
};

// Returns the entries of all kinds.
absl::Span<const ConsistencyKind> ConsistencyKinds();

// Returns the entry of the consistency's kind, or that of `asynchronous` if it has none.
const ConsistencyKind& KindOf(const v1::Consistency& consistency);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_CONSISTENCY_KINDS_H_
