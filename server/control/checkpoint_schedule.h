// Decides when the shards take checkpoints, and numbers them. One checkpoint is in progress at a time.
//
// A checkpoint is announced to all shards together with its version. A shard takes it when it reaches that
// version, or at once if it has already reached it. The next checkpoint is announced when the last one is
// settled, that is, when all shards have saved it, or when one of them has failed to and another checkpoint
// is due. If the disk is too slow, checkpoints are therefore skipped, and all shards skip the same ones.
//
// With every_updates, checkpoints are due at its multiples, which are also their numbers. With every_seconds,
// a checkpoint is due that many seconds after the previous one if there were updates in between. The first
// one of a run is due after 10 s, and each later interval is twice as long as the one before until it is
// every_seconds: a young run has little to lose, but it would lose all of it.
//
// Synchronous mode: all shards take a checkpoint at exactly its version. The version is never below one up to
// which updates were already granted, and until all shards have acknowledged the announcement, no updates
// beyond it may be granted. If checkpoints include the states of workers, which save them between two leases,
// or if blocks have different versions within a lease (Overlaps), the version is the one after all granted
// updates, as soon as that is at or above the multiple.
// Other modes: with every_updates alone, a multiple is announced in advance; together with every_seconds,
// when it has been passed. With every_seconds, a checkpoint is taken at once.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_CHECKPOINT_SCHEDULE_H_
#define CATCHMENT_SERVER_CONTROL_CHECKPOINT_SCHEDULE_H_

#include <cstdint>
#include <optional>

#include "proto/job.pb.h"
#include "proto/master_image.pb.h"

namespace catchment {

class CheckpointSchedule {
 public:
  struct Announced {
    uint64_t number = 0;      // 0: no checkpoint yet
    uint64_t version = 0;     // 0: at once
    uint64_t generation = 0;  // of the command that announces it
    // Announced while the job was being stopped and no worker had anything left to push.
    bool at_rest = false;
  };
  struct Facts {
    double now = 0;        // seconds
    uint64_t earlier = 0;  // number of the checkpoint that the job was resumed from; 0: none
    uint64_t version = 0;  // the highest of all shards
    // Synchronous mode: the version after all granted updates, and its highest possible value after the next
    // grant.
    uint64_t granted = 0;
    uint64_t reach = 0;
    bool failing = false;  // a shard has reported that it could not save
    // The job is being stopped: exactly one more checkpoint is due. In synchronous mode it is taken after all
    // granted updates; in other modes at once when all contributions have been applied (`at_rest`).
    bool draining = false;
    bool at_rest = false;
  };

  // `settings` has its defaults filled in. `first_version` is the version of the shards at the start.
  CheckpointSchedule(const v1::Checkpointing& settings, bool synchronous, uint64_t first_version,
                     bool overlaps = false);

  // Announces a checkpoint if one is due, and returns true if so. `generation` is that of the command that
  // will announce it. Called only while the job trains.
  bool Step(const Facts& facts, uint64_t generation);

  // Notes that all shards have saved checkpoint `number`. Returns true if it is the last one announced and
  // was not settled before.
  bool Settle(uint64_t number);

  v1::CheckpointScheduleImage Save(double now) const;
  void Restore(const v1::CheckpointScheduleImage& image, double now);

  // Returns the last checkpoint that was announced.
  const Announced& last() const { return last_; }
  // Returns the lowest version from `version` on that a checkpoint still needs.
  uint64_t LowestNeeded(uint64_t version) const;
  // Returns the highest number that shards at `version` or below may have used for a state other than the one
  // at that version; 0: none.
  uint64_t UsedNumber(uint64_t version) const;

 private:
  // Returns the highest number up to that of `announced` that shards at `version` may have used for another
  // state.
  uint64_t UsedUpTo(const Announced& announced, uint64_t version) const;
  // Return the checkpoint that is due, if any.
  std::optional<Announced> Due(const Facts& facts) const;
  std::optional<Announced> DueAtRest(const Facts& facts) const;
  std::optional<Announced> DueByUpdates(const Facts& facts) const;
  std::optional<Announced> DueBySeconds(const Facts& facts) const;

  const uint64_t every_updates_;
  const double every_seconds_;
  const bool synchronous_;
  const bool at_plan_ends_;  // synchronous mode: checkpoints are taken between two leases
  Announced last_;
  Announced before_;             // the checkpoint before the last
  bool pending_ = false;         // the last checkpoint is not settled
  uint64_t seen_version_;        // the highest version of all shards when the last one was announced
  std::optional<double> since_;  // when the last one was announced, or training began
  double interval_;              // until the next one is due by every_seconds
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_CHECKPOINT_SCHEDULE_H_
