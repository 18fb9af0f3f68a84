#include "server/control/span_pool.h"

#include <glog/logging.h>

#include <algorithm>
#include <iterator>

namespace catchment {

void SpanPool::Add(const Span& span) {
  if (span.size() == 0) return;
  num_samples_ += span.size();
  uint64_t begin = span.begin;
  uint64_t end = span.end;
  auto next = ends_.lower_bound({span.epoch, span.begin});
  if (next != ends_.end() && next->first.epoch == span.epoch) {
    CHECK_GE(next->first.position, end) << "samples are pending twice";
    if (next->first.position == end) {
      end = next->second;
      next = ends_.erase(next);
    }
  }
  if (next != ends_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first.epoch == span.epoch) {
      CHECK_LE(previous->second, begin) << "samples are pending twice";
      if (previous->second == begin) {
        previous->second = end;
        return;
      }
    }
  }
  ends_.emplace_hint(next, Position{span.epoch, begin}, end);
}

void SpanPool::Add(const Step& step) {
  for (const Span& span : step) Add(span);
}

Span SpanPool::TakeFront(uint64_t at_most) {
  const auto first = ends_.begin();
  const Position at = first->first;
  const uint64_t all = first->second;
  const uint64_t end = std::min(all, at.position + at_most);
  ends_.erase(first);
  if (end < all) ends_.emplace(Position{at.epoch, end}, all);
  num_samples_ -= end - at.position;
  return {at.epoch, at.position, end};
}

uint64_t SpanPool::SamplesOf(uint64_t epoch) const {
  uint64_t samples = 0;
  for (auto span = ends_.lower_bound({epoch, 0}); span != ends_.end() && span->first.epoch == epoch; ++span) {
    samples += span->second - span->first.position;
  }
  return samples;
}

Step SpanPool::spans() const {
  Step spans;
  for (const auto& [begin, end] : ends_) spans.push_back({begin.epoch, begin.position, end});
  return spans;
}

}  // namespace catchment
