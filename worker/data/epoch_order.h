// The order in which an epoch goes through the training set.
#ifndef CATCHMENT_WORKER_DATA_EPOCH_ORDER_H_
#define CATCHMENT_WORKER_DATA_EPOCH_ORDER_H_

#include <array>
#include <cstdint>
#include <vector>

namespace catchment {

// A permutation of the samples for every epoch, by Fisher and Yates's shuffle: a function of (seed, epoch)
// alone, so that all workers, even restarted ones, agree on the sample at each position.
//
// Threads: not thread-safe; the last two epochs are kept.
class EpochOrder {
 public:
  // num_samples: 1 .. 2^32 - 1.
  EpochOrder(uint64_t seed, int64_t num_samples);

  int64_t num_samples() const { return num_samples_; }

  // Returns the index of the sample at each position. Valid until two other epochs have been asked for.
  const std::vector<uint32_t>& order(uint64_t epoch);

 private:
  struct Cached {
    uint64_t epoch = 0;
    std::vector<uint32_t> order;  // empty: not made yet
  };

  uint64_t seed_;
  int64_t num_samples_;
  std::array<Cached, 2> cached_;  // the one that was asked for last comes first
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_EPOCH_ORDER_H_
