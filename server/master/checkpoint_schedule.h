// When the shards save themselves, and under which number: one checkpoint at a time.
//
// A checkpoint is announced to all shards with the version that it is taken at; a shard takes it when it
// reaches that version, or at once where it is there already. The next one is announced when the last is
// settled: saved by all shards, or failed at one of them while another falls due. A disk that is too slow so
// skips checkpoints, on all shards the same ones.
//
// By updates, checkpoints fall due at the multiples of every_updates, and take them as numbers. By seconds,
// one falls due every_seconds after the one before, where there were updates since. Synchronous mode: all
// shards take a checkpoint at exactly its version, which is none that workers have been granted updates
// beyond; until all shards have acknowledged it no updates beyond it are to be granted. Where checkpoints
// have the states of workers, which save them between two leases, it is the version after all granted
// updates: the first of these at or above the multiple. All other modes: by updates a multiple is announced
// ahead, or, where there is every_seconds too, once it is passed; by seconds a checkpoint is taken at once.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_CHECKPOINT_SCHEDULE_H_
#define CATCHMENT_SERVER_MASTER_CHECKPOINT_SCHEDULE_H_

#include <cstdint>
#include <optional>

#include "proto/job.pb.h"

namespace catchment {

class CheckpointSchedule {
 public:
  struct Announced {
    uint64_t number = 0;      // 0: none yet
    uint64_t version = 0;     // 0: at once
    uint64_t generation = 0;  // of the command that announces it
    // It was announced while the job was being stopped, when no worker had anything left to push.
    bool at_rest = false;
  };
  struct Facts {
    double now = 0;        // seconds
    uint64_t earlier = 0;  // number of the checkpoint that the job continued from; 0: none
    uint64_t version = 0;  // the highest of all shards
    // Synchronous mode: the version after all updates that are granted, and the highest that it can have
    // after the next grant.
    uint64_t granted = 0;
    uint64_t reach = 0;
    bool failing = false;  // a shard reports that it could not save
    // The job is being stopped: one more checkpoint is due, and no others. In synchronous mode it is taken
    // after all granted updates; in all other modes at once, when all contributions are applied (`at_rest`).
    bool draining = false;
    bool at_rest = false;
  };

  // `settings` are complete. `first_version`: of the shards at the start.
  CheckpointSchedule(const v1::Checkpointing& settings, bool synchronous, uint64_t first_version);

  // Training goes on: announces a checkpoint if one is due. `generation`: of the command that will announce
  // it. Returns whether there is one.
  bool Step(const Facts& facts, uint64_t generation);

  // All shards have saved checkpoint `number`. Returns whether it is the last one that was announced, and was
  // not settled.
  bool Settle(uint64_t number);

  // The last one that was announced.
  const Announced& last() const { return last_; }
  // The lowest version that a checkpoint still needs, of those from `version` on.
  uint64_t LowestNeeded(uint64_t version) const;
  // The highest number that shards at `version` or below may have used for anything but their state at that
  // version; 0: none.
  uint64_t UsedNumber(uint64_t version) const;

 private:
  // Returns the highest number that shards at `version` may have used for another state, of these two and up
  // to `announced`.
  uint64_t UsedUpTo(const Announced& announced, uint64_t version) const;
  // What is due; nothing: nothing is.
  std::optional<Announced> Due(const Facts& facts) const;
  std::optional<Announced> DueAtRest(const Facts& facts) const;
  std::optional<Announced> DueByUpdates(const Facts& facts) const;
  std::optional<Announced> DueBySeconds(const Facts& facts) const;

  const uint64_t every_updates_;
  const double every_seconds_;
  const bool synchronous_;
  const bool at_plan_ends_;  // synchronous mode: workers save their states, which they do between two leases
  Announced last_;
  Announced before_;             // the one before the last
  bool pending_ = false;         // the last one is not settled
  uint64_t seen_version_;        // the highest of all shards when the last one was announced
  std::optional<double> since_;  // when the last one was announced, or training began
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_CHECKPOINT_SCHEDULE_H_
