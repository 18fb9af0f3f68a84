// A matrix product, created once for its sizes. All matrices are row-major. The device's precision determines
// the factors (kernels/cuda/factor.h): 16 bits for each value, or float32, of which TF32's products read 11
// significant bits. Sums and biases are float32, and so are results unless they are to be rounded to 16 bits.
#ifndef CATCHMENT_KERNELS_CUDA_GEMM_H_
#define CATCHMENT_KERNELS_CUDA_GEMM_H_

#include <cstdint>
#include <memory>

#include "kernels/cuda/device.h"

namespace catchment::cuda {

struct GemmSpec {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;        // op(a) is m x k, op(b) is k x n, c is m x n
  int64_t lda = 0, ldb = 0, ldc = 0;  // values from one stored row to the next
  bool accumulate = false;            // c += instead of c =
  bool bias = false;                  // c + bias, one value for each column
  bool relu = false;                  // max(c + bias, 0)
  bool rounds_result = false;         // c has the 16 bits of factors; without accumulate, bias and relu
  // The alignment of the addresses in bytes (AlignmentOf); a bias may have any.
  int a_alignment = 256, b_alignment = 256, c_alignment = 256;
};

class Gemm {
 public:
  Gemm(Device* device, const GemmSpec& spec);
  ~Gemm();
  Gemm(Gemm&&) noexcept;

  void Run(const void* a, const void* b, const float* bias, void* c);

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_GEMM_H_
