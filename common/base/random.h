// Random numbers that are the same on every machine and compiler, unlike the distributions of the standard
// library. Seeds are always passed in, and streams of random numbers are derived from them.
#ifndef CATCHMENT_COMMON_BASE_RANDOM_H_
#define CATCHMENT_COMMON_BASE_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <string>

namespace catchment {

// Returns one output of SplitMix64 (Steele, Lea, Flood 2014), a bijection that scatters close inputs.
inline uint64_t Scatter(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Returns the seed of stream `stream` of `seed`. For more dimensions, nest it: Derive(Derive(seed, epoch),
// sample).
inline uint64_t Derive(uint64_t seed, uint64_t stream) { return Scatter(Scatter(seed) ^ stream); }

// A generator of one stream. Not thread-safe, but cheap to create.
class Random {
 public:
  // The streams of neighboring seeds are unrelated.
  explicit Random(uint64_t seed) : state_(Scatter(seed)) {}

  uint64_t Next() {
    const uint64_t value = Scatter(state_);
    state_ += 0x9e3779b97f4a7c15u;
    return value;
  }

  // Returns a uniform number in [0, 1) with 53 random bits.
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }

  // Returns a uniform number in 0 .. n-1; n must be positive. Its bias is at most n / 2^64.
  uint64_t Below(uint64_t n) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * n) >> 64);
  }

  // Returns a standard normal number (Box and Muller; one of the pair is dropped).
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    return radius * std::cos(6.283185307179586 * Uniform());
  }

 private:
  uint64_t state_;
};

// Returns 64 random bits from the operating system, never 0.
uint64_t RandomId();

// Returns the 16 hexadecimal digits with which messages show an id.
std::string FormatId(uint64_t id);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_RANDOM_H_
