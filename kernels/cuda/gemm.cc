// Gemm with cuBLASLt, which is column-major: the row-major c = op(a) op(b) is its c' = op(b)' op(a)', where a
// stored row-major matrix already is its transpose.
#include "kernels/cuda/gemm.h"

#include <cublasLt.h>

#include <optional>
#include <string>

namespace catchment::cuda {
namespace {

void Check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(std::string(what) + ": cuBLAS error " + std::to_string(static_cast<int>(status)) + ", " +
              cublasLtGetStatusString(status));
}

// Returns the handle of the process.
cublasLtHandle_t Handle() {
  static cublasLtHandle_t handle = [] {
    cublasLtHandle_t made;
    Check(cublasLtCreate(&made), "cuBLASLt");
    return made;
  }();
  return handle;
}

cublasLtMatrixLayout_t Layout(cudaDataType type, int64_t rows, int64_t columns, int64_t leading) {
  cublasLtMatrixLayout_t layout;
  Check(cublasLtMatrixLayoutCreate(&layout, type, rows, columns, leading), "a matrix layout");
  return layout;
}

// Returns the type of factors; results and biases are CUDA_R_32F. cublasLtMatmul has both pairs of types with
// CUBLAS_COMPUTE_32F, scale, C, D and bias in float32.
cudaDataType TypeOf(Precision precision) {
  if (precision == Precision::kBfloat16) return CUDA_R_16BF;
  return precision == Precision::kFloat16 ? CUDA_R_16F : CUDA_R_32F;
}

template <typename T>
void Set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  Check(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value), "a product's attribute");
}

template <typename T>
void Set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  Check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "a preference");
}

cublasLtEpilogue_t Epilogue(const GemmSpec& spec) {
  if (spec.bias) return spec.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  return spec.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

// The alignment in bytes of the vector that an epilogue adds, so that it may load several values at a time.
// The biases of a layer begin where its weights end.
constexpr uintptr_t kBiasAlignment = 16;

}  // namespace

struct Gemm::Plan {
  Device* device;
  float beta;
  std::optional<DeviceArray<>> bias;  // a copy, for one that is not aligned; null without bias
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm;

  ~Plan() {
    for (cublasLtMatrixLayout_t layout : {first, second, result}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    if (product != nullptr) cublasLtMatmulDescDestroy(product);
  }

  void Choose(const GemmSpec& spec) {
    // It uses the alignment of the address, and does not read the memory.
    if (bias) Set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, kBiasAlignment);
    cublasLtMatmulPreference_t preference;
    Check(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    Set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Device::kWorkspaceBytes);
    const auto first_bytes = static_cast<uint32_t>(spec.b_alignment);
    const auto second_bytes = static_cast<uint32_t>(spec.a_alignment);
    const auto result_bytes = static_cast<uint32_t>(spec.c_alignment);
    Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, first_bytes);
    Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, second_bytes);
    Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result_bytes);
    Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result_bytes);
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(Handle(), product, first, second, result,
                                                                 result, preference, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    Check(status, "no way to multiply matrices of these sizes");
    if (count == 0) throw Error("cuBLASLt has no way to multiply matrices of these sizes");
    algorithm = found.algo;
  }

  const float* Aligned(const float* from) {
    if (reinterpret_cast<uintptr_t>(from) % kBiasAlignment == 0) return from;
    if (cudaMemcpyAsync(bias->data(), from, bias->bytes(), cudaMemcpyDeviceToDevice,
                        device->streams().compute) != cudaSuccess) {
      throw Error("a bias cannot be copied");
    }
    return bias->data();
  }
};

Gemm::Gemm(Device* device, const GemmSpec& spec) : plan_(new Plan{.device = device}) {
  Plan& plan = *plan_;
  plan.beta = spec.accumulate ? 1.0f : 0.0f;
  if (spec.bias) plan.bias.emplace(device, spec.n);
  const bool tf32 = device->precision() == Precision::kTf32;
  Check(cublasLtMatmulDescCreate(&plan.product, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                 CUDA_R_32F),
        "a product");
  Set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, spec.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(plan.product, CUBLASLT_MATMUL_DESC_TRANSB, spec.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE, Epilogue(spec));
  const cudaDataType type = TypeOf(device->precision());
  plan.first =
      spec.transpose_b ? Layout(type, spec.k, spec.n, spec.ldb) : Layout(type, spec.n, spec.k, spec.ldb);
  plan.second =
      spec.transpose_a ? Layout(type, spec.m, spec.k, spec.lda) : Layout(type, spec.k, spec.m, spec.lda);
  plan.result = Layout(CUDA_R_32F, spec.n, spec.m, spec.ldc);
  plan.Choose(spec);
}

Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;

void Gemm::Run(const void* a, const void* b, const float* bias, float* c) {
  const float one = 1;
  if (plan_->bias) Set(plan_->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, plan_->Aligned(bias));
  Check(cublasLtMatmul(Handle(), plan_->product, &one, b, plan_->first, a, plan_->second, &plan_->beta, c,
                       plan_->result, c, plan_->result, &plan_->algorithm, plan_->device->workspace(),
                       Device::kWorkspaceBytes, plan_->device->streams().compute),
        "a product of matrices");
}

}  // namespace catchment::cuda
