#include "kernels/cpu/parallel.h"

#include <omp.h>

#include <algorithm>

#include "dnnl.h"
#include "glog/logging.h"

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

void Multiply(const Matrix& a, const Matrix& b, int64_t rows, int64_t columns, int64_t inner, bool add,
              float* c, int64_t c_stride) {
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', rows, columns, inner, 1, a.values,
                 a.stride, b.values, b.stride, add ? 1 : 0, c, c_stride);
  CHECK_EQ(status, dnnl_success) << "oneDNN could not multiply matrices";
}

}  // namespace catchment
