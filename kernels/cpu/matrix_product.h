// Products of row-major float matrices with oneDNN's sgemm.
#ifndef CATCHMENT_KERNELS_CPU_MATRIX_PRODUCT_H_
#define CATCHMENT_KERNELS_CPU_MATRIX_PRODUCT_H_

#include <cstdint>

namespace catchment {

// A row-major matrix, or its transpose.
struct Matrix {
  const float* values;
  int64_t stride;  // from row to row
  bool transposed = false;
};

// Computes c = a b, or c += a b with `add`, where a has rows x inner, b has inner x columns and c has
// rows x columns values. The rows of c are c_stride values apart. Uses as many threads as SetThreads says.
void Multiply(const Matrix& a, const Matrix& b, int64_t rows, int64_t columns, int64_t inner, bool add,
              float* c, int64_t c_stride);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_MATRIX_PRODUCT_H_
