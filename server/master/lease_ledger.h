// The data ledger of asynchronous training: each worker gets a few minibatches of its own at a time.
//
// A lease has kMinibatchesPerLease minibatches of batch_size samples, or as many as SetLeaseSize says; near the
// end of the budget fewer, at most (minibatches left) / (2 * members) and at least 1, so that all workers end
// together. A minibatch holds samples of one epoch; the last of an epoch may be smaller.
#ifndef CATCHMENT_SERVER_MASTER_LEASE_LEDGER_H_
#define CATCHMENT_SERVER_MASTER_LEASE_LEDGER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "proto/master.pb.h"
#include "server/master/budget.h"
#include "server/master/data_ledger.h"
#include "server/master/sample_source.h"

namespace catchment {

inline constexpr uint64_t kMinibatchesPerLease = 8;

class LeaseLedger final : public DataLedger {
 public:
  // `from`: where to begin; a default MasterState is the beginning.
  LeaseLedger(const Pace& pace, const Budget& budget, uint64_t train_samples, const v1::MasterState& from);

  std::optional<uint64_t> Prepare(uint64_t holder, const std::vector<uint64_t>& members) override;
  void SetLeaseSize(uint64_t holder, uint64_t minibatches) override { holders_[holder].most = minibatches; }
  Deal Next(uint64_t holder, const std::vector<uint64_t>& members) override;
  void MarkDone(uint64_t holder, uint64_t steps) override;
  void SetLeaving(uint64_t holder) override {}
  uint64_t GiveBack(uint64_t holder, uint64_t begun) override;
  bool HasWork(uint64_t holder) const override;
  bool AllDealt() const override;
  bool AllDone() const override { return AllDealt() && open_minibatches_ == 0; }
  uint64_t done_samples() const override { return source_.taken() - open_samples_; }
  v1::MasterState StateAt(const Cut& cut) const override;
  void Forget(uint64_t version) override {}
  void AwaitCheckpoint(bool awaited) override;
  void Close() override { closed_ = true; }

 private:
  // The minibatches of all its leases, numbered from 0. They are done from the first to the last; those that
  // are done are kept while a checkpoint is awaited.
  struct Holder {
    uint64_t most = kMinibatchesPerLease;  // in a lease
    uint64_t leases = 0;
    uint64_t first = 0;  // that is kept
    uint64_t done = 0;
    std::deque<Step> kept;
    bool gone = false;  // what it had not done was given back

    uint64_t end() const { return first + kept.size(); }
    const Step& step(uint64_t number) const { return kept[number - first]; }
    bool has_open() const { return done < end(); }
  };

  uint64_t MinibatchesLeft() const;
  void FinishNext(Holder* holder);
  // Drops the minibatches that are done.
  static void Drop(Holder* holder);

  const uint64_t batch_size_;
  const std::optional<uint64_t> budget_;  // in minibatches
  SampleSource source_;
  std::map<uint64_t, Holder> holders_;
  bool checkpoint_awaited_ = false;
  bool closed_ = false;
  uint64_t dealt_minibatches_;  // and not given back
  uint64_t open_minibatches_ = 0;
  uint64_t open_samples_ = 0;
};

// How many minibatches a lease of asynchronous training has: about a second of the worker's steps, or, of
// more than 100 workers, more seconds, so that all together ask for about 100 leases a second. What a worker
// that is lost has not done goes to others, however large its lease was.
inline constexpr uint64_t kMostPerLease = 1000;

// Returns the size of the next lease of a worker that has made this progress, from kMinibatchesPerLease
// (server/master/lease_ledger.h) to kMostPerLease; `workers`: members of the job.
uint64_t LeaseSize(const v1::Progress& progress, int workers);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_LEASE_LEDGER_H_
