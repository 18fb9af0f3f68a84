// A histogram of durations on a logarithmic scale, with four buckets per factor of two. Each bucket is
// represented by its geometric mean, which is within 10 % of all values in it.
//
// Units: microseconds, from 8 to 2^32 (more than an hour); values outside are clamped.
// Memory: constant. Threads: not thread-safe.
#ifndef CATCHMENT_COMMON_BASE_LATENCY_HISTOGRAM_H_
#define CATCHMENT_COMMON_BASE_LATENCY_HISTOGRAM_H_

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

  // Calls visit(uint64_t microseconds, uint64_t count) for each nonempty bucket in ascending order. Adding
  // these values to another histogram counts them in the same buckets.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (int b = 0; b < kBuckets; ++b) {
      if (counts_[b] > 0) visit(static_cast<uint64_t>(std::llround(Middle(b))), counts_[b]);
    }
  }

  uint64_t count() const { return count_; }
  // Returns the smallest bucket's value that at least the fraction `share`, in (0, 1], of all values is at or
  // below; 0 if the histogram is empty.
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
  // In lower octaves the means of the buckets would not differ after rounding.
  static constexpr int kFirstOctave = 3;
  static constexpr int kBuckets = (32 - kFirstOctave) * kPerOctave;

  static double Middle(int bucket) { return std::exp2(kFirstOctave + (bucket + 0.5) / kPerOctave); }

  std::array<uint64_t, kBuckets> counts_{};
  uint64_t count_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_LATENCY_HISTOGRAM_H_
