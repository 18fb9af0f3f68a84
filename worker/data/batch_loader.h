// Prepares minibatches on threads of its own, ahead of the one that trains.
#ifndef CATCHMENT_WORKER_DATA_BATCH_LOADER_H_
#define CATCHMENT_WORKER_DATA_BATCH_LOADER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "worker/data/batch_reader.h"

namespace catchment {

// Says what to load next; nullopt: nothing more, ever. Called on the loader's thread, only when a buffer is
// free, and may block.
using NextPlan = std::function<absl::StatusOr<std::optional<BatchPlan>>()>;

// A ring of `depth` buffers that are filled by the background thread and emptied by Next(), in the order of
// the plans. Buffers are used again: once each has held the largest minibatch, nothing is allocated. With
// more threads than one, they divide the samples of each minibatch among them.
//
// Threads: Next() and HasNext() are for one thread at a time; the measurements for any. The destructor ends
// and joins the background thread. It cannot wake a NextPlan that blocks: the owner must make it return
// first. Errors: the first error of NextPlan, or that of the reader (batch_reader.h), ends the
// loading; Next() returns it after the batches that were loaded before it, and at every later call.
class BatchLoader {
 public:
  struct Options {
    // At least 1; one buffer is in the caller's hands while it trains, so depth - 1 minibatches are prepared
    // ahead.
    int depth = 1;
    int threads = 1;                 // that read, at least 1
    PinInputs pin_inputs = nullptr;  // may be null
  };

  // dataset, augmentation and clock must outlive the loader. `order` is over the whole of `dataset`.
  // `augmentation` may be null.
  BatchLoader(const Dataset* dataset, const Augmentation* augmentation, EpochOrder order, Options options,
              NextPlan next_plan, const Clock* clock);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // Returns the next minibatch, valid until the next call; null if there are no more. Waits for it if need
  // be.
  absl::StatusOr<const LoadedBatch*> Next() ABSL_LOCKS_EXCLUDED(mu_);

  // Returns true if Next() would return at once.
  bool HasNext() const ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the seconds that all calls of Next() have waited together.
  double seconds_waited() const ABSL_LOCKS_EXCLUDED(mu_);

  // Returns BatchReader::bytes_read().
  uint64_t bytes_read() const { return reader_.bytes_read(); }
  double read_seconds() const { return reader_.read_seconds(); }

 private:
  // Runs on the background thread.
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns a free buffer; null when the loader is being destroyed.
  LoadedBatch* WaitForFree() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns true if `batch` is loaded; false at the end of the plans.
  absl::StatusOr<bool> LoadNext(LoadedBatch* batch);
  void WaitForReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Clock* const clock_;

  // Used only by the background thread, except for the reader's totals.
  BatchReader reader_;
  const NextPlan next_plan_;

  mutable Mutex mu_;
  CondVar changed_;
  std::vector<LoadedBatch> buffers_;  // each belongs to whoever took it from free_ or ready_
  std::vector<LoadedBatch*> free_ ABSL_GUARDED_BY(mu_);
  std::deque<LoadedBatch*> ready_ ABSL_GUARDED_BY(mu_);
  LoadedBatch* lent_ ABSL_GUARDED_BY(mu_) = nullptr;  // what the last Next() returned
  bool ended_ ABSL_GUARDED_BY(mu_) = false;           // nothing more will become ready
  absl::Status end_ ABSL_GUARDED_BY(mu_);             // why
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  double seconds_waited_ ABSL_GUARDED_BY(mu_) = 0;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_BATCH_LOADER_H_
