// kernels/cuda/gemm.h on the CPU, for tests. TF32's factors are rounded; tests/kernels/cuda/ptx/cublaslt.cc
// drops their bits.
#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cuda/factor.h"
#include "kernels/cuda/gemm.h"

namespace catchment::cuda {

struct Gemm::Plan {
  GemmSpec spec;
  Precision precision;

  float Read(const void* factor, int64_t i) const {
    if (precision == Precision::kBfloat16) return FromBfloat16(static_cast<const uint16_t*>(factor)[i]);
    if (precision == Precision::kFloat16) return FromFloat16(static_cast<const uint16_t*>(factor)[i]);
    const float value = static_cast<const float*>(factor)[i];
    return precision == Precision::kTf32 ? RoundToTf32(value) : value;
  }

  std::vector<float> ReadAll(const void* factor, int64_t rows, int64_t columns, int64_t stride) const {
    std::vector<float> values;
    values.reserve(rows * columns);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) values.push_back(Read(factor, r * stride + c));
    }
    return values;
  }
};

Gemm::Gemm(Device* device, const GemmSpec& spec) : plan_(new Plan{spec, device->precision()}) {}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;

void Gemm::Run(const void* a, const void* b, const float* bias, void* c) {
  const GemmSpec& s = plan_->spec;
  for (const auto& [pointer, alignment] :
       {std::pair<const void*, int>(a, s.a_alignment), {b, s.b_alignment}, {c, s.c_alignment}}) {
    if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0)
      throw Error("a matrix of a product is not aligned to " + std::to_string(alignment) + " bytes");
  }
  const int64_t a_columns = s.transpose_a ? s.m : s.k, b_columns = s.transpose_b ? s.k : s.n;
  const std::vector<float> first = plan_->ReadAll(a, s.transpose_a ? s.k : s.m, a_columns, s.lda);
  const std::vector<float> second = plan_->ReadAll(b, s.transpose_b ? s.n : s.k, b_columns, s.ldb);
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = s.accumulate ? static_cast<const float*>(c)[i * s.ldc + j] : 0.0f;
      for (int64_t k = 0; k < s.k; ++k) {
        sum += double{s.transpose_a ? first[k * a_columns + i] : first[i * a_columns + k]} *
               (s.transpose_b ? second[j * b_columns + k] : second[k * b_columns + j]);
      }
      if (s.bias) sum += bias[j];
      const FactorWriter result = {c, s.rounds_result ? plan_->precision : Precision::kFloat32};
      result.Write(i * s.ldc + j, static_cast<float>(s.relu ? std::max(sum, 0.0) : sum));
    }
  }
}

}  // namespace catchment::cuda
