// kernels/cuda/gemm.h on the processor, for tests.
#include <algorithm>

#include "kernels/cuda/gemm.h"

namespace catchment::cuda {

struct Gemm::Plan {
  GemmSpec spec;
};

Gemm::Gemm(Device*, const GemmSpec& spec) : plan_(new Plan{spec}) {}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;

void Gemm::Run(const float* a, const float* b, const float* bias, float* c) {
  const GemmSpec& s = plan_->spec;
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = s.accumulate ? c[i * s.ldc + j] : 0.0f;
      for (int64_t k = 0; k < s.k; ++k) {
        sum += double{s.transpose_a ? a[k * s.lda + i] : a[i * s.lda + k]} *
               (s.transpose_b ? b[j * s.ldb + k] : b[k * s.ldb + j]);
      }
      if (s.bias) sum += bias[j];
      c[i * s.ldc + j] = static_cast<float>(s.relu ? std::max(sum, 0.0) : sum);
    }
  }
}

}  // namespace catchment::cuda
