// The vectors of models of one size, over which the `apply` benchmark's passes go block by block.
//
// A small model (all its vectors fit the second-level cache) is one copy, passed over again and again: the
// figure is the cache's. For a larger one there are enough copies, used in turn, that none is in the cache
// when its turn comes: the figure is the memory's.
#ifndef CATCHMENT_TESTS_BENCHMARKS_APPLY_MEMORY_H_
#define CATCHMENT_TESTS_BENCHMARKS_APPLY_MEMORY_H_

#include <functional>
#include <vector>

#include "tests/benchmarks/apply_case.h"

namespace catchment {

class ApplyMemory {
 public:
  using Pass = std::function<void(const BlockVectors&)>;

  ApplyMemory(int64_t parameters, int threads);

  bool cold() const { return models_.size() > 1 || bytes_ > kCachedBytes; }

  // Passes over whole models, of `bytes_per_parameter`, until kMeasuredBytes have moved; returns GB/s (1e9).
  // Thread t takes every threads-th block, from block t on.
  double GbPerSecond(int64_t bytes_per_parameter, const Pass& pass);

 private:
  static constexpr int64_t kCachedBytes = 1 << 20;
  static constexpr int64_t kMeasuredBytes = 64 << 20;

  // weights, states, values, answers, copy
  using Model = std::vector<std::vector<float>>;

  Model MakeModel(uint64_t seed) const;
  BlockVectors Block(size_t model, int64_t block);

  const int64_t parameters_;
  const int threads_;
  int64_t bytes_ = 0;  // of all vectors of one model
  std::vector<Model> models_;
  size_t next_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_APPLY_MEMORY_H_
