// Loops and matrix products on the threads that oneDNN uses too, OpenMP's.
#ifndef CATCHMENT_KERNELS_CPU_PARALLEL_H_
#define CATCHMENT_KERNELS_CPU_PARALLEL_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace catchment {

// Sets the number of threads of the calling thread's parallel loops, oneDNN's and ours.
void SetThreads(int threads);

// Calls f(begin, end) for ranges that together are 0 .. size-1, one on each thread. f must not throw. Uses
// fewer threads if the ranges would be smaller than `grain`. Under ThreadSanitizer, which cannot see
// OpenMP's barriers, one thread does everything.
void ParallelFor(int64_t size, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> f);

// A row-major matrix, or its transpose.
struct Matrix {
  const float* values;
  int64_t stride;  // from row to row
  bool transposed = false;
};

// Computes c = a b with oneDNN's sgemm, or c += a b with `add`, where a has rows x inner, b has inner x
// columns and c has rows x columns values. The rows of c are c_stride values apart. It uses the number of
// threads that SetThreads has set.
void Multiply(const Matrix& a, const Matrix& b, int64_t rows, int64_t columns, int64_t inner, bool add,
              float* c, int64_t c_stride);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_PARALLEL_H_
