#include "tests/benchmarks/rate_meter.h"

#include <algorithm>

#include "glog/logging.h"

namespace catchment {

RateMeter::RateMeter(int workers, int steps, double interval)
    : span_(static_cast<uint64_t>(workers) * static_cast<uint64_t>(steps)), interval_(interval) {
  CHECK_GT(span_, 0u);
}

void RateMeter::Add(double time, uint64_t count) {
  if (!begun_) {
    begun_ = true;
    first_ = count;
  }
  if (count > (points_.empty() ? first_ : points_.back().count)) points_.push_back({time, count});
}

bool RateMeter::enough() const {
  return !points_.empty() && points_.back().count - points_.front().count >= 2 * span_;
}

double RateMeter::per_second() const {
  CHECK(enough());
  double seconds = 0;
  int counted = 0;
  for (const Point& point : points_) {
    if (point.count + span_ > points_.back().count) break;
    seconds += TimeOf(point.count + span_) - point.time;
    ++counted;
  }
  return static_cast<double>(span_) * counted / seconds;
}

double RateMeter::TimeOf(uint64_t count) const {
  const auto after = std::lower_bound(points_.begin(), points_.end(), count,
                                      [](const Point& point, uint64_t c) { return point.count < c; });
  CHECK(after != points_.end() && after != points_.begin());
  const Point& before = *std::prev(after);
  // The increments between the two points came since the previous reading, which is not stored if it was
  // equal to the one before it.
  const double since = std::max(before.time, after->time - interval_);
  const double share =
      static_cast<double>(count - before.count) / static_cast<double>(after->count - before.count);
  return since + share * (after->time - since);
}

}  // namespace catchment
