// Writes a shard's snapshots to disk on a thread of its own, one after another.
#ifndef CATCHMENT_SERVER_HOST_CHECKPOINT_WRITER_H_
#define CATCHMENT_SERVER_HOST_CHECKPOINT_WRITER_H_

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "proto/wire.pb.h"
#include "server/shard/shard.h"

namespace catchment {

// The thread has a low priority and a duty cycle of one half, so that training continues at nearly full
// speed.
//
// Threads: safe. The destructor writes the snapshot that still waits, so it must run before the shard's.
// Errors: the newest snapshot that could not be written is kept and tried again, after pauses that grow to a
// few seconds, until it is written or a newer one replaces it; save_error has the reason until a write
// succeeds.
class CheckpointWriter {
 public:
  // `directory` empty: snapshots count as saved, and nothing is written. `resumed`: the checkpoint that
  // the shard begins with, which is saved already; 0: none.
  CheckpointWriter(std::string directory, int shard, int num_shards, uint64_t resumed);
  ~CheckpointWriter();

  // Continues for a process of this shard that had taken checkpoint `number`. Returns true if it is saved,
  // and reports it. Otherwise it is lost, which is reported as an error unless the caller `takes_it_again`.
  bool Adopt(uint64_t number, bool takes_it_again);

  // Copies the remaining blocks, and writes the snapshot. At most one waits; a second replaces it, with a
  // warning: the disk is too slow for the job's checkpoints.
  void Write(std::unique_ptr<PendingSnapshot> snapshot);

  // Fills in saved and save_error.
  void Report(v1::ShardReport* report) const;

 private:
  void Run();
  // Returns the snapshot to write next, or null when the writer is to end. If there is a `failed` one, waits
  // for at most `pause` seconds, and returns it if no newer one has arrived.
  std::unique_ptr<PendingSnapshot> Next(std::unique_ptr<PendingSnapshot>* failed, double pause);
  // Returns the entry of checkpoint `number`; nothing if its file is missing or damaged.
  std::optional<v1::SavedShard> Find(uint64_t number) const;
  // Returns whether the snapshot is written.
  bool WriteOne(const ShardSnapshot& snapshot);

  const std::string directory_;
  const int shard_;
  const int num_shards_;
  mutable Mutex mu_;
  CondVar changed_;
  std::unique_ptr<PendingSnapshot> waiting_ ABSL_GUARDED_BY(mu_);  // may be null
  std::deque<v1::SavedShard> saved_ ABSL_GUARDED_BY(mu_);          // the last ones
  std::string error_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_HOST_CHECKPOINT_WRITER_H_
