// A loop over the threads that oneDNN uses too (OpenMP's), for our own kernels.
#ifndef CATCHMENT_KERNELS_CPU_PARALLEL_H_
#define CATCHMENT_KERNELS_CPU_PARALLEL_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace catchment {

// Sets how many threads the calling thread's parallel loops have, oneDNN's and ours.
void SetThreads(int threads);

// Calls f(begin, end) for parts that together are 0 .. size-1, one part a thread. f must not throw.
// A part of the work that is smaller than `grain` is not worth a thread.
// Under ThreadSanitizer, which cannot see OpenMP's barriers, one thread does all.
void ParallelFor(int64_t size, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> f);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_PARALLEL_H_
