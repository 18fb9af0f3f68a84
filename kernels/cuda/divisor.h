// Division by a number that is known when a kernel is launched, as a product and a shift: a GPU has no
// instruction for the division of integers, and takes about twenty for one.
//
// With s = ceil(log2 d) and m = floor(2^32 (2^s - d) / d) + 1, n / d is (floor(n m / 2^32) + n) / 2^s for all
// n below 2^31.
// Source: Granlund and Montgomery 1994, "Division by invariant integers using multiplication".
#ifndef CATCHMENT_KERNELS_CUDA_DIVISOR_H_
#define CATCHMENT_KERNELS_CUDA_DIVISOR_H_

#include <cstdint>

#include "kernels/cuda/precision.h"

namespace catchment::cuda {

class Divisor {
 public:
  // `divisor` is from 1 to 2^31 - 1.
  explicit Divisor(int64_t divisor) : divisor_(static_cast<uint32_t>(divisor)) {
    while ((uint64_t{1} << shift_) < divisor_) ++shift_;
    const uint64_t above = (uint64_t{1} << shift_) - divisor_;
    multiplier_ = static_cast<uint32_t>((above << 32) / divisor_ + 1);
  }

  // Sets `rest` to the remainder and returns the quotient. n is not negative.
  CATCHMENT_ON_DEVICE int Divide(int n, int* rest) const {
    const int quotient = n / *this;
    *rest = n - quotient * static_cast<int>(divisor_);
    return quotient;
  }

  friend CATCHMENT_ON_DEVICE int operator/(int n, const Divisor& d) {
    const auto number = static_cast<uint32_t>(n);
#ifdef __CUDA_ARCH__
    const uint32_t high = __umulhi(number, d.multiplier_);
#else
    const auto high = static_cast<uint32_t>((uint64_t{number} * d.multiplier_) >> 32);
#endif
    return static_cast<int>((high + number) >> d.shift_);
  }
  friend CATCHMENT_ON_DEVICE int operator%(int n, const Divisor& d) {
    int rest;
    d.Divide(n, &rest);
    return rest;
  }

 private:
  uint32_t divisor_, multiplier_ = 0;
  int shift_ = 0;
};

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_DIVISOR_H_
