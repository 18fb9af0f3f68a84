// Watches what a test allocates with operator new, which linking this replaces.
#ifndef CATCHMENT_TESTS_WORKER_MODEL_LARGEST_ALLOCATION_H_
#define CATCHMENT_TESTS_WORKER_MODEL_LARGEST_ALLOCATION_H_

#include <cstddef>

namespace catchment {

void ResetLargestAllocation();

// Bytes of the largest allocation since the reset, by any thread.
size_t LargestAllocation();

}  // namespace catchment

#endif  // CATCHMENT_TESTS_WORKER_MODEL_LARGEST_ALLOCATION_H_
