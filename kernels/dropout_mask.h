// The masks of dropout: a value is set to zero by a hash of (seed, layer, sample, element), so that a mask
// does not depend on the worker, the minibatch, the device or the layout in memory. The backward pass
// computes the mask again.
//
// Source: the finalizer of MurmurHash3 (Austin Appleby, public domain), with a key at its start and middle.
#ifndef CATCHMENT_KERNELS_DROPOUT_MASK_H_
#define CATCHMENT_KERNELS_DROPOUT_MASK_H_

#include <cstdint>

#include "common/base/random.h"

namespace catchment {

struct DropoutKey {
  uint32_t first;
  uint32_t second;
};

inline DropoutKey MakeDropoutKey(uint64_t seed, int layer, uint64_t sample_id) {
  const uint64_t key = Derive(Derive(seed, static_cast<uint64_t>(layer)), sample_id);
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

// Returns the hash of an element, counted in C x H x W order. It takes 32-bit arithmetic only, eight at a
// time with AVX2.
constexpr uint32_t DropoutHash(DropoutKey key, uint32_t element) {
  uint32_t hash = element * 0x9e3779b9u + key.first;
  hash ^= hash >> 16;
  hash *= 0x85ebca6bu;
  hash ^= (hash >> 13) ^ key.second;
  hash *= 0xc2b2ae35u;
  return hash ^ (hash >> 16);
}

// Returns the threshold for hashes: a value whose hash is below it is set to zero; all others are multiplied
// by 1 / (1 - rate).
constexpr uint32_t DropoutThreshold(float rate) {
  return static_cast<uint32_t>(static_cast<double>(rate) * 0x1p32);
}

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_DROPOUT_MASK_H_
