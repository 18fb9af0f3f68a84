// Values side by side that a thread reads and writes together, by accesses of 16 bytes.
#ifndef CATCHMENT_KERNELS_CUDA_PACK_H_
#define CATCHMENT_KERNELS_CUDA_PACK_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/precision.h"

namespace catchment::cuda {

// kWidth values: 1, 4 or 8. Their address must be a multiple of their size, or of 16 bytes if they have more.
template <int kWidth, typename T = float>
struct alignas(kWidth * sizeof(T) < 16 ? kWidth * sizeof(T) : 16) Pack {
  T at[kWidth];
};

template <int kWidth, typename T>
CATCHMENT_ON_DEVICE Pack<kWidth, T> LoadPack(const T* from) {
  return *reinterpret_cast<const Pack<kWidth, T>*>(from);
}

template <int kWidth, typename T>
CATCHMENT_ON_DEVICE void StorePack(T* to, const Pack<kWidth, T>& pack) {
  *reinterpret_cast<Pack<kWidth, T>*>(to) = pack;
}

// Calls f(width), a constant of type std::integral_constant, with the largest of 8, 4 and 1 that divides
// `values` and is at most kMost. Rows of `values` values then consist of whole packs, aligned if the first
// one is.
template <int kMost, typename F>
void WithPackWidth(int64_t values, F f) {
  if constexpr (kMost >= 8) {
    if (values % 8 == 0) return f(std::integral_constant<int, 8>());
  }
  if (values % 4 == 0) return f(std::integral_constant<int, 4>());
  f(std::integral_constant<int, 1>());
}

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_PACK_H_
