// How often something took how long, on a logarithmic scale: four buckets to a factor of two, each
// represented by its geometric middle, which is within 10 % of all that is in it.
//
// Units: microseconds, from 8 to 2^32, more than an hour; what is outside counts as the nearest.
// Threads: not thread-safe. Of one size, however much is counted.
#ifndef CATCHMENT_COMMON_LATENCY_HISTOGRAM_H_
#define CATCHMENT_COMMON_LATENCY_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace catchment {

class LatencyHistogram {
 public:
  void Add(double microseconds, uint64_t count = 1) {
    const double octave = std::log2(std::max(microseconds, 1.0)) - kFirstOctave;
    counts_[static_cast<int>(std::clamp(kPerOctave * octave, 0.0, kBuckets - 1.0))] += count;
    count_ += count;
  }

  // visit(uint64_t microseconds, uint64_t count) for each bucket that is not empty, ascending. What is told
  // so can be added to another histogram, and falls into the same bucket.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (int b = 0; b < kBuckets; ++b) {
      if (counts_[b] > 0) visit(static_cast<uint64_t>(std::llround(Middle(b))), counts_[b]);
    }
  }

  uint64_t count() const { return count_; }
  // What at least this share of all is at or below, to within a bucket; share in (0, 1]. 0 where nothing was
  // counted.
  double Quantile(double share) const {
    uint64_t seen = 0;
    for (int b = 0; b < kBuckets; ++b) {
      seen += counts_[b];
      if (seen > 0 && static_cast<double>(seen) >= share * static_cast<double>(count_)) return Middle(b);
    }
    return 0;
  }

 private:
  static constexpr int kPerOctave = 4;
  // Middles below would not differ as whole numbers.
  static constexpr int kFirstOctave = 3;
  static constexpr int kBuckets = (32 - kFirstOctave) * kPerOctave;

  static double Middle(int bucket) { return std::exp2(kFirstOctave + (bucket + 0.5) / kPerOctave); }

  std::array<uint64_t, kBuckets> counts_{};
  uint64_t count_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_LATENCY_HISTOGRAM_H_
