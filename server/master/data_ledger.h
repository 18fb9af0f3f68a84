// Which samples are dealt, to whom, and which are done. Each sample of an epoch is dealt exactly once, unless
// it is given back.
//
// A holder is a worker incarnation; its leases are numbered from 1. Its steps, those of all of its leases,
// are done from the first to the last.
//
// Threads: not thread-safe. Errors: CHECK; callers ask only for members.
#ifndef CATCHMENT_SERVER_MASTER_DATA_LEDGER_H_
#define CATCHMENT_SERVER_MASTER_DATA_LEDGER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "server/master/span.h"

namespace catchment {

struct Deal {
  uint64_t number = 0;         // of the lease
  uint64_t first_version = 0;  // synchronous mode
  uint64_t first_step = 0;     // synchronous mode: of the job
  std::vector<Step> minibatches;
};

// What the shards had when a checkpoint was taken.
struct Cut {
  uint64_t version = 0;  // the highest of the shards
  // Returns how many of the holder's first steps all shards had settled. Empty: those that are done now.
  // Synchronous mode: unused.
  std::function<uint64_t(uint64_t holder)> settled_steps;
  // Synchronous mode: returns whether the holder's own state is saved too, with all steps before the version.
  // Empty: no state is.
  std::function<bool(uint64_t holder)> state_is_saved;
};

class DataLedger {
 public:
  virtual ~DataLedger() = default;

  // The version at which the holder's next lease begins (asynchronous mode: 0); nothing while there is none
  // for it. `members`: all holders, by worker index, this one among them.
  virtual std::optional<uint64_t> Prepare(uint64_t holder, const std::vector<uint64_t>& members) = 0;

  // Limits the holder's leases from now on to `minibatches`, at least 1. Plans of synchronous training have
  // their own size, and ignore it.
  virtual void SetLeaseSize(uint64_t holder, uint64_t minibatches) = 0;

  // The holder's next lease. Prepare must just have said that there is one.
  virtual Deal Next(uint64_t holder, const std::vector<uint64_t>& members) = 0;

  // Counts the first `steps` steps of the holder as done: all shards have settled them. Takes nothing back;
  // steps that were never dealt are ignored.
  virtual void MarkDone(uint64_t holder, uint64_t steps) = 0;

  // Notes that the holder takes no further part; which of its steps are done may not be known yet.
  virtual void SetLeaving(uint64_t holder) = 0;

  // Deals again what the holder, which is gone, has not done. Returns how many samples are in those of its
  // steps up to step `begun` that it has not done.
  virtual uint64_t GiveBack(uint64_t holder, uint64_t begun) = 0;

  // Something is dealt to the holder, or planned for it, and not done.
  virtual bool HasWork(uint64_t holder) const = 0;

  // Assigns nothing more: the job is being stopped. In synchronous mode plans that some holder has a lease of
  // are still given to the others.
  virtual void Close() = 0;

  // Nothing is left to deal, unless something is given back.
  virtual bool AllDealt() const = 0;
  virtual bool AllDone() const = 0;

  // Samples done since the beginning of the job; each counts once.
  virtual uint64_t done_samples() const = 0;

  // Returns what a job has to go on from with the weights of a checkpoint. Synchronous mode: exactly what
  // follows its version, which must not be forgotten. Asynchronous mode: all steps that the cut does not
  // have; AwaitCheckpoint(true) must have been called before any shard took the checkpoint. Fills
  // train_samples, version, pending, next_*, steps and samples.
  virtual v1::MasterState StateAt(const Cut& cut) const = 0;

  // Synchronous mode: StateAt will not be asked for older versions.
  virtual void Forget(uint64_t version) = 0;

  // Asynchronous mode: from now on keeps the steps that are done (true), until StateAt will not be asked for
  // any more (false).
  virtual void AwaitCheckpoint(bool awaited) = 0;
};

// The data ledger that a job's consistency asks for.
// InvalidArgument for a state that no master can have written: pending samples that lie beyond the next fresh
// one, or twice.
absl::Status CheckMasterState(const v1::MasterState& state);

// The job has its defaults filled in; `from` has passed CheckMasterState, or is the default: the beginning.
std::unique_ptr<DataLedger> MakeDataLedger(const v1::Job& job, uint64_t train_samples,
                                           const v1::MasterState& from);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_DATA_LEDGER_H_
