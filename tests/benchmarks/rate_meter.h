// The rate of a count that many workers drive in step with themselves, from readings of it.
//
// Each of W workers adds one in every step, and their steps may lie together or apart, so that the
// count grows in bursts. In steady state any h = n W additions take the time of n steps, wherever one begins
// to count: that time is taken from every reading of the first half of the measurement on, and averaged.
//
// Units: seconds, of any clock. Threads: not thread-safe.
#ifndef CATCHMENT_TESTS_BENCHMARKS_RATE_METER_H_
#define CATCHMENT_TESTS_BENCHMARKS_RATE_METER_H_

#include <cstdint>
#include <vector>

namespace catchment {

class RateMeter {
 public:
  // Measures over 2 * steps steps of every worker. interval: the count that is read is renewed so often.
  RateMeter(int workers, int steps, double interval);

  // A reading; begins with the first change.
  void Add(double time, uint64_t count);
  bool enough() const;
  // Once there is enough.
  double per_second() const;

 private:
  struct Point {
    double time;
    uint64_t count;
  };

  // When the count reached `count`, which it has.
  double TimeOf(uint64_t count) const;

  const uint64_t span_;  // h
  const double interval_;
  bool begun_ = false;
  uint64_t first_ = 0;
  std::vector<Point> points_;  // each with a larger count than the one before
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_RATE_METER_H_
