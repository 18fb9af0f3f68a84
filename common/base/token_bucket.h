// A limit of how often something may happen: `burst` times at once, and `per_second` times over a longer time
// (Turner 1986).
//
// Threads: not thread-safe. Units: seconds; times of calls do not decrease.
#ifndef CATCHMENT_COMMON_BASE_TOKEN_BUCKET_H_
#define CATCHMENT_COMMON_BASE_TOKEN_BUCKET_H_

#include <algorithm>

namespace catchment {

class TokenBucket {
 public:
  TokenBucket(double per_second, double burst, double now)
      : per_second_(per_second), burst_(burst), tokens_(burst), at_(now) {}

  // Returns true if it may happen at `now`, and counts it as `times`.
  bool Take(double now, double times = 1) {
    tokens_ = TokensAt(now);
    at_ = now;
    if (tokens_ < times) return false;
    tokens_ -= times;
    return true;
  }
  // Returns true if nothing has happened for so long that the bucket is like a new one.
  bool IsFull(double now) const { return TokensAt(now) >= burst_; }

 private:
  double TokensAt(double now) const { return std::min(burst_, tokens_ + (now - at_) * per_second_); }

  double per_second_;
  double burst_;
  double tokens_;
  double at_;  // the time of tokens_
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_TOKEN_BUCKET_H_
