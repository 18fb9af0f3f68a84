// Reads minibatches of samples into memory.
#ifndef CATCHMENT_WORKER_DATA_BATCH_READER_H_
#define CATCHMENT_WORKER_DATA_BATCH_READER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/span.h"
#include "kernels/backend.h"
#include "worker/data/aligned_floats.h"
#include "worker/data/augmentation.h"
#include "worker/data/dataset.h"
#include "worker/data/epoch_order.h"
#include "worker/data/sample_threads.h"

namespace catchment {

// The samples of one minibatch: those of the spans of the epochs' orders (epoch_order.h), in their order. No
// spans: a minibatch of no samples.
struct BatchPlan {
  uint64_t tag = 0;  // the caller's; handed back with the batch
  std::vector<Span> spans;
};

// Prepares memory in which minibatches are loaded again and again: kernels/backend.h, Pin. Called on the
// loader's thread.
using PinInputs = std::function<std::unique_ptr<Pinning>(absl::Span<const float> inputs)>;

struct LoadedBatch {
  uint64_t tag = 0;
  std::vector<Span> spans;
  int64_t samples = 0;
  AlignedFloats inputs;         // samples x C x H x W; data() may be null if there are no samples
  std::vector<int32_t> labels;  // samples; none if there are targets
  AlignedFloats targets;        // samples x num_targets of real numbers; data() is null for data with classes
  std::vector<uint64_t> sample_ids;  // samples; Derive(epoch, index of the sample), whoever loads it
  // Samples without content (dataset.h) have neither inputs nor labels, and their index is the position.
  std::unique_ptr<Pinning> pinned_inputs;  // ends before the inputs; may be null
};

// Threads: the totals are for any thread; otherwise not thread-safe. Errors: InvalidArgument for a span
// outside the training set; those of files that are read.
class BatchReader {
 public:
  struct Options {
    int threads = 1;               // that read, the caller of Read included
    const Clock* clock = nullptr;  // measures the time of reading; null: it is not measured
    PinInputs pin_inputs = nullptr;
  };

  // `dataset`, `augmentation` and the clock outlive the reader. `order` is over the whole of `dataset`.
  // `augmentation` may be null.
  BatchReader(const Dataset* dataset, const Augmentation* augmentation, EpochOrder order, Options options);

  // Reads the samples of a plan: the same values with any number of threads. Once `batch` has held the
  // largest minibatch, nothing is allocated.
  absl::Status Read(BatchPlan plan, LoadedBatch* batch);

  // Returns the bytes that all reads have read from files.
  uint64_t bytes_read() const { return bytes_read_; }
  // Returns the seconds in which the threads have read, decoded and augmented samples, summed over the
  // threads.
  double read_seconds() const { return threads_.busy_seconds(); }

 private:
  void ResizeInputs(int64_t size, LoadedBatch* batch);
  // Sets the fields of a span's samples, except their inputs.
  void NameSpan(const Span& span, int64_t at, LoadedBatch* batch);
  absl::Status ReadSample(int thread, int64_t i, LoadedBatch* batch);

  const Dataset* const dataset_;
  const Augmentation* const augmentation_;  // null: none
  EpochOrder order_;
  const PinInputs pin_inputs_;
  std::vector<uint32_t> indices_;              // of the minibatch's samples in the data set
  std::vector<std::vector<float>> originals_;  // of a sample that is augmented, for each thread
  std::atomic<uint64_t> bytes_read_ = 0;
  SampleThreads threads_;  // last: they use all of the above
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_BATCH_READER_H_
