// Records which samples are assigned to which worker and which are done. Each sample of an epoch is assigned
// exactly once, unless it is returned.
//
// A holder is an incarnation of a worker. Its leases are numbered from 1, and the steps of all of its leases
// are done in order.
//
// Threads: not thread-safe. Errors: CHECK; callers pass only members.
#ifndef CATCHMENT_SERVER_CONTROL_DATA_LEDGER_H_
#define CATCHMENT_SERVER_CONTROL_DATA_LEDGER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master_image.pb.h"
#include "server/control/span.h"

namespace catchment {

// The samples of one lease.
struct Assignment {
  uint64_t number = 0;         // of the lease
  uint64_t first_version = 0;  // synchronous mode
  uint64_t first_step = 0;     // synchronous mode; counted over the job
  std::vector<Step> minibatches;
  bool last = false;  // synchronous mode: no samples are left to assign after it
};

// The state of the shards when a checkpoint was taken.
struct Cut {
  uint64_t version = 0;  // the highest of all shards
  // Returns how many of the holder's first steps all shards had settled. If empty, the steps that are done
  // now are used. Not used in synchronous mode.
  std::function<uint64_t(uint64_t holder)> settled_steps;
  // Returns how many of the holder's first steps some block of a shard had. If empty, none beyond the settled
  // ones. Not used in synchronous mode.
  std::function<uint64_t(uint64_t holder)> begun_steps;
  // Synchronous mode: returns true if the state of the holder itself is also saved, with all steps before the
  // version. If empty, no state is saved.
  std::function<bool(uint64_t holder)> state_is_saved;
};

class DataLedger {
 public:
  virtual ~DataLedger() = default;

  // Returns the version at which the holder's next lease begins (0 in asynchronous mode), or nothing if it
  // has no lease yet. `members` are all holders, including this one, by worker index.
  virtual std::optional<uint64_t> Prepare(uint64_t holder, const std::vector<uint64_t>& members) = 0;

  // Limits the holder's later leases to `minibatches`, which is at least 1. Synchronous training ignores it,
  // because its plans have a fixed size.
  virtual void SetLeaseSize(uint64_t holder, uint64_t minibatches) = 0;

  // Assigns the holder's next lease. Prepare must just have returned a version for it.
  virtual Assignment Next(uint64_t holder, const std::vector<uint64_t>& members) = 0;

  // Counts the first `steps` steps of the holder as done, because all shards have settled them. The count
  // never falls; steps that were never assigned are ignored.
  virtual void MarkDone(uint64_t holder, uint64_t steps) = 0;

  // Notes that the holder will do no more steps. Which of its steps are done may not be known yet.
  virtual void SetLeaving(uint64_t holder) = 0;

  // Returns the unfinished samples of a holder that has left, so that they are assigned again. The result is
  // the number of samples in its unfinished steps up to step `begun`.
  virtual uint64_t Return(uint64_t holder, uint64_t begun) = 0;

  // Returns true if samples are assigned to the holder or planned for it, and not done.
  virtual bool HasWork(uint64_t holder) const = 0;

  // Stops assigning samples, because the job is being stopped. In synchronous mode, a plan that one holder
  // has a lease of is still assigned to the others.
  virtual void Close() = 0;

  // Returns true if no samples are left to assign, unless some are returned.
  virtual bool AllAssigned() const = 0;
  // Returns true if all samples have been assigned and done.

  virtual bool AllDone() const = 0;
  // Returns the number of samples done since the beginning of the job; each counts once.
  virtual uint64_t done_samples() const = 0;

  // Returns the state from which a job is resumed with the weights of a checkpoint. In synchronous mode this
  // is exactly what follows its version, which must not have been forgotten. In asynchronous mode it contains
  // all steps that are not in the cut; AwaitCheckpoint(true) must have been called before any shard took the
  // checkpoint. Fills train_samples, as if an epoch had all of them, version, pending, next_*, steps, samples
  // and, with the pending samples that some blocks of the checkpoint include, repeated_samples.
  virtual v1::MasterState StateAt(const Cut& cut) const = 0;

  // Synchronous mode: frees what is only needed for StateAt of versions below `version`.
  virtual void Forget(uint64_t version) = 0;

  // Asynchronous mode: with true, keeps the steps that are done from now on, for a later StateAt; with false,
  // drops them.
  virtual void AwaitCheckpoint(bool awaited) = 0;

  // Writes the state into the field of the ledger's kind, and takes it from there into a ledger of the same
  // job.
  virtual void Save(v1::MasterImage* image) const = 0;
  virtual void Restore(const v1::MasterImage& image) = 0;
};

// Returns what is wrong with samples that are returned or assigned, of a training set of `train_samples`, if
// the first fresh one is `next`: none is there twice, beyond the training set, or fresh. Empty: nothing.
std::string DescribeProblem(std::vector<Span> spans, uint64_t train_samples, const Position& next);

// Returns InvalidArgument for a state that no master can have written, in which samples are pending twice or
// lie beyond the next fresh sample.
absl::Status CheckMasterState(const v1::MasterState& state);

// Returns the data ledger for the consistency of a job whose defaults are filled in. `from` has passed
// CheckMasterState; a default MasterState is the beginning.
std::unique_ptr<DataLedger> MakeDataLedger(const v1::Job& job, uint64_t train_samples,
                                           const v1::MasterState& from);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_DATA_LEDGER_H_
