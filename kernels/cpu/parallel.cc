#include "kernels/cpu/parallel.h"

#include <omp.h>

#include <algorithm>

namespace catchment {

void SetThreads(int threads) { omp_set_num_threads(threads); }

void ParallelFor(int64_t size, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> f) {
#ifdef __SANITIZE_THREAD__
  const int64_t parts = 1;
#else
  const int64_t parts = std::min<int64_t>(omp_get_max_threads(), size / std::max<int64_t>(grain, 1));
#endif
  if (parts <= 1) {
    f(0, size);
    return;
  }
#pragma omp parallel for num_threads(parts) schedule(static)
  for (int64_t part = 0; part < parts; ++part) f(size * part / parts, size * (part + 1) / parts);
}

}  // namespace catchment
