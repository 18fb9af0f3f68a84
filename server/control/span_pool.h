// Samples that wait to be assigned: disjoint spans ordered by epoch and position. Adjacent spans are merged.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_SPAN_POOL_H_
#define CATCHMENT_SERVER_CONTROL_SPAN_POOL_H_

#include <cstdint>
#include <map>

#include "server/control/span.h"

namespace catchment {

class SpanPool {
 public:
  // Adds samples, none of which may be in the pool already.
  void Add(const Span& span);
  void Add(const Step& step);

  // Takes up to `at_most` samples from the first span. The pool must not be empty.
  Span TakeFront(uint64_t at_most);

  bool empty() const { return ends_.empty(); }
  uint64_t first_epoch() const { return ends_.begin()->first.epoch; }
  uint64_t num_samples() const { return num_samples_; }
  uint64_t SamplesOf(uint64_t epoch) const;
  Step spans() const;

 private:
  std::map<Position, uint64_t> ends_;  // begin -> end
  uint64_t num_samples_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_SPAN_POOL_H_
