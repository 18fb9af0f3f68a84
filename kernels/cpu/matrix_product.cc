#include "kernels/cpu/matrix_product.h"

#include "dnnl.h"
#include "glog/logging.h"

namespace catchment {

void Multiply(const Matrix& a, const Matrix& b, int64_t rows, int64_t columns, int64_t inner, bool add,
              float* c, int64_t c_stride) {
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', rows, columns, inner, 1, a.values,
                 a.stride, b.values, b.stride, add ? 1 : 0, c, c_stride);
  CHECK_EQ(status, dnnl_success) << "oneDNN could not multiply matrices";
}

}  // namespace catchment
