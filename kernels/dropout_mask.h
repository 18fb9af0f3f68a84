// Which values dropout zeroes: a hash of (seed, layer, sample, element), so that a mask depends on neither
// the worker, the batch, the device nor the layout in memory. Backward computes it again, nothing is stored.
//
// Source: the finalizer of MurmurHash3 (Austin Appleby, public domain), with a key at its start and middle.
#ifndef CATCHMENT_KERNELS_DROPOUT_MASK_H_
#define CATCHMENT_KERNELS_DROPOUT_MASK_H_

#include <cstdint>

#include "common/random.h"

namespace catchment {

struct DropoutKey {
  uint32_t first;
  uint32_t second;
};

inline DropoutKey MakeDropoutKey(uint64_t seed, int layer, uint64_t sample_id) {
  const uint64_t key = Derive(Derive(seed, static_cast<uint64_t>(layer)), sample_id);
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

// `element` counts in C x H x W order. Only 32-bit arithmetic, eight at a time in AVX2.
constexpr uint32_t DropoutHash(DropoutKey key, uint32_t element) {
  uint32_t hash = element * 0x9e3779b9u + key.first;
  hash ^= hash >> 16;
  hash *= 0x85ebca6bu;
  hash ^= (hash >> 13) ^ key.second;
  hash *= 0xc2b2ae35u;
  return hash ^ (hash >> 16);
}

// A value is zeroed when its hash is below this, and otherwise multiplied by 1 / (1 - rate).
constexpr uint32_t DropoutThreshold(float rate) {
  return static_cast<uint32_t>(static_cast<double>(rate) * 0x1p32);
}

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_DROPOUT_MASK_H_
