// The data ledger of asynchronous training: each worker gets a lease of a few minibatches at a time.
//
// A lease has kMinibatchesPerLease minibatches of batch_size samples, or the number set by SetLeaseSize. Near
// the end of the budget it has fewer, at most (minibatches left) / (2 * members) and at least 1, so that all
// workers finish at about the same time. The samples of a minibatch belong to one epoch; the last minibatch
// of an epoch may be smaller, or with Pace.merges_last larger.
#ifndef CATCHMENT_SERVER_CONTROL_LEASE_LEDGER_H_
#define CATCHMENT_SERVER_CONTROL_LEASE_LEDGER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "proto/master.pb.h"
#include "server/control/data_ledger.h"
#include "server/control/sample_source.h"

namespace catchment {

inline constexpr uint64_t kMinibatchesPerLease = 8;

class LeaseLedger final : public DataLedger {
 public:
  // Starts from `from`; a default MasterState is the beginning.
  LeaseLedger(const Pace& pace, const Budget& budget, uint64_t samples_per_epoch,
              const v1::MasterState& from);

  std::optional<uint64_t> Prepare(uint64_t holder, const std::vector<uint64_t>& members) override;
  void SetLeaseSize(uint64_t holder, uint64_t minibatches) override { holders_[holder].most = minibatches; }
  Assignment Next(uint64_t holder, const std::vector<uint64_t>& members) override;
  void MarkDone(uint64_t holder, uint64_t steps) override;
  void SetLeaving(uint64_t holder) override {}
  uint64_t Return(uint64_t holder, uint64_t begun) override;
  bool HasWork(uint64_t holder) const override;
  bool AllAssigned() const override;
  bool AllDone() const override { return AllAssigned() && open_minibatches_ == 0; }
  uint64_t done_samples() const override { return source_.taken() - open_samples_; }
  v1::MasterState StateAt(const Cut& cut) const override;
  void Forget(uint64_t version) override {}
  void AwaitCheckpoint(bool awaited) override;
  void Close() override { closed_ = true; }
  void Save(v1::MasterImage* image) const override;
  void Restore(const v1::MasterImage& image) override;

 private:
  // The minibatches of all leases of a holder, numbered from 0. They are done in order; while a checkpoint is
  // awaited, those that are done are kept.
  struct Holder {
    uint64_t most = kMinibatchesPerLease;  // the largest number in a lease
    uint64_t leases = 0;
    uint64_t first = 0;  // the first that is kept
    uint64_t done = 0;
    std::deque<Step> kept;
    bool gone = false;  // its unfinished minibatches were returned

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
  uint64_t assigned_minibatches_;  // and not returned
  uint64_t open_minibatches_ = 0;
  uint64_t open_samples_ = 0;
};

// The largest number of minibatches in a lease of asynchronous training. A lease has about one second of the
// worker's steps. With more than 100 workers it has more, so that all workers together request about 100
// leases per second. The unfinished minibatches of a lost worker are assigned to others, however large its
// lease was.
inline constexpr uint64_t kMaxPerLease = 1000;

// Returns the number of minibatches, from kMinibatchesPerLease to kMaxPerLease, in the next lease of a
// worker that has made this progress. `workers` is the number of workers of the job.
uint64_t LeaseSize(const v1::Progress& progress, int workers);

// Returns the steps of a worker in a second in which it loads samples and computes; 0 as long as it has
// reported none.
double StepsPerSecond(const v1::Progress& progress);

// Returns the steps between two contributions of a worker with this speed, of which the fastest one makes
// `most` (PseudoGradient.steps_by_speed): at least 1, and `most` as long as one of the speeds is not known,
// 0.
uint32_t LocalSteps(uint32_t most, double speed, double fastest);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_LEASE_LEDGER_H_
