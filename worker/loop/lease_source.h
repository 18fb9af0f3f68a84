// Turns leases of the master into plans of minibatches for the loader.
#ifndef CATCHMENT_WORKER_LOOP_LEASE_SOURCE_H_
#define CATCHMENT_WORKER_LOOP_LEASE_SOURCE_H_

#include <deque>
#include <functional>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "proto/master.pb.h"
#include "worker/algorithms/algorithm.h"
#include "worker/data/batch_loader.h"

namespace catchment {

// The surroundings of a LeaseSource: calls over gRPC (worker/loop/master_leases.h), or of a simulation.
class LeaseCalls {
 public:
  virtual ~LeaseCalls() = default;
  // Asks the master for a lease. Errors: the master's own; Cancelled when the worker was asked to stop.
  virtual absl::StatusOr<v1::Lease> GetLease(const v1::GetLeaseRequest& request) = 0;
  // Returns true if the worker was asked to stop.
  virtual bool IsStopped() const = 0;
  // Waits until `is_done`, which depends on the worker's progress, returns true, the seconds have passed, or
  // the worker is asked to stop.
  virtual void PauseUntil(absl::FunctionRef<bool()> is_done, double seconds) const = 0;
};

// Threads: Next() is the loader's; the others for any.
class LeaseSource {
 public:
  // The lease and the step in it that a minibatch is, from the plan's tag.
  struct Place {
    uint64_t lease = 0;
    uint64_t step = 0;  // from 1
  };
  static Place PlaceOf(uint64_t tag) { return {tag >> 32, tag & 0xffffffff}; }
  // Tags of plans without samples that are not steps: everything computed is to be pushed (Lease.flush); the
  // job was stopped, and nothing more is to be pushed (Lease.stopped).
  static constexpr uint64_t kFlush = UINT64_MAX;
  static constexpr uint64_t kStopped = UINT64_MAX - 1;
  static bool IsRequest(uint64_t tag) { return tag >= kSaveState; }
  // Returns the checkpoint for which the worker is to save its state (Lease.save_state), where the tag is of
  // such a plan, and 0 where it is not.
  static uint64_t CheckpointOf(uint64_t tag) {
    return tag >= kSaveState && tag < kStopped ? tag - kSaveState : 0;
  }

  // `progress` gives the worker's progress for the request. `calls` outlives the source.
  LeaseSource(uint32_t worker, uint64_t incarnation, LeaseCalls* calls,
              std::function<v1::Progress()> progress);

  // NextPlan of the loader: blocks until the master has something; nullopt at the end or when asked to stop.
  absl::StatusOr<std::optional<BatchPlan>> Next();

  // Returns the version of the first lease; valid once Next has returned a plan.
  uint64_t first_version() const;
  // Returns the step of the minibatch with this tag and these samples: its place in the job's budget, and
  // Lease.local_steps of the last lease. `samples_per_epoch`: SamplesPerEpoch. Steps are asked for in the
  // order of the leases.
  Algorithm::Step StepOf(uint64_t tag, absl::Span<const Span> spans, uint64_t samples_per_epoch);

 private:
  static constexpr uint64_t kSaveState = uint64_t{1} << 63;  // plus the checkpoint's number

  enum class Renewal { kGranted, kTagged, kEnd };
  absl::StatusOr<Renewal> Renew();
  // Returns the tag of the plan without samples that the master's answer asks for; 0: it asks for none, or
  // for one that was made already.
  uint64_t TakeRequest(const v1::Lease& answer);
  // Returns true if every step of the last lease is done.
  bool IsDone(const v1::Progress& progress) const;
  // Pauses, but not beyond the moment when all steps of the last lease are done, unless that was reported.
  void PauseUntilDone(const v1::Progress& reported, double seconds) const;

  const uint32_t worker_;
  const uint64_t incarnation_;
  LeaseCalls& calls_;
  const std::function<v1::Progress()> progress_;

  // Used by the loader's thread.
  v1::Lease lease_;
  int next_ = 0;          // minibatch of it
  uint64_t tag_ = 0;      // of the plan that kTagged announces
  uint64_t flushed_ = 0;  // number of the last lease after which there was a plan with kFlush
  uint64_t saved_ = 0;    // the last checkpoint for which there was a plan
  bool stopped_ = false;  // there was a plan with kStopped

  mutable Mutex mu_;
  std::optional<uint64_t> first_version_ ABSL_GUARDED_BY(mu_);
  uint64_t total_samples_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t local_steps_ ABSL_GUARDED_BY(mu_) = 0;
  // Leases with `last` or `settle` whose last steps have not been asked for.
  struct Marked {
    uint64_t number = 0;
    uint32_t steps = 0;
    bool last = false;
    bool settle = false;
  };
  std::deque<Marked> marked_ ABSL_GUARDED_BY(mu_);
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_LOOP_LEASE_SOURCE_H_
