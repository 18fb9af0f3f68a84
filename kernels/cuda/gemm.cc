// Gemm by cuBLASLt. It counts columns first: the row-major c = op(a) op(b) is its c' = op(b)' op(a)', where a
// stored row-major matrix is its transpose already.
#include "kernels/cuda/gemm.h"

#include <cublasLt.h>

#include <string>

namespace catchment::cuda {
namespace {

void Check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(std::string(what) + ": cuBLAS error " + std::to_string(static_cast<int>(status)) + ", " +
              cublasLtGetStatusString(status));
}

// One for the process.
cublasLtHandle_t Handle() {
  static cublasLtHandle_t handle = [] {
    cublasLtHandle_t made;
    Check(cublasLtCreate(&made), "cuBLASLt");
    return made;
  }();
  return handle;
}

cublasLtMatrixLayout_t Layout(int64_t rows, int64_t columns, int64_t leading) {
  cublasLtMatrixLayout_t layout;
  Check(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, rows, columns, leading), "a matrix layout");
  return layout;
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

}  // namespace

struct Gemm::Plan {
  Device* device;
  bool bias;
  float beta;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm;

  ~Plan() {
    for (cublasLtMatrixLayout_t layout : {first, second, result}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    if (product != nullptr) cublasLtMatmulDescDestroy(product);
  }

  void Choose(int alignment) {
    cublasLtMatmulPreference_t preference;
    Check(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    Set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Device::kWorkspaceBytes);
    const auto bytes = static_cast<uint32_t>(alignment);
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      Set(preference, attribute, bytes);
    }
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(Handle(), product, first, second, result,
                                                                 result, preference, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    Check(status, "no way to multiply matrices of these sizes");
    if (count == 0) throw Error("cuBLASLt has no way to multiply matrices of these sizes");
    algorithm = found.algo;
  }
};

Gemm::Gemm(Device* device, const GemmSpec& spec) : plan_(new Plan{.device = device, .bias = spec.bias}) {
  Plan& plan = *plan_;
  plan.beta = spec.accumulate ? 1.0f : 0.0f;
  Check(cublasLtMatmulDescCreate(
            &plan.product, device->tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "a product");
  Set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, spec.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(plan.product, CUBLASLT_MATMUL_DESC_TRANSB, spec.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE, Epilogue(spec));
  plan.first = spec.transpose_b ? Layout(spec.k, spec.n, spec.ldb) : Layout(spec.n, spec.k, spec.ldb);
  plan.second = spec.transpose_a ? Layout(spec.m, spec.k, spec.lda) : Layout(spec.k, spec.m, spec.lda);
  plan.result = Layout(spec.n, spec.m, spec.ldc);
  plan.Choose(spec.alignment);
}

Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;

void Gemm::Run(const float* a, const float* b, const float* bias, float* c) {
  const float one = 1;
  if (plan_->bias) Set(plan_->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  Check(cublasLtMatmul(Handle(), plan_->product, &one, b, plan_->first, a, plan_->second, &plan_->beta, c,
                       plan_->result, c, plan_->result, &plan_->algorithm, plan_->device->workspace(),
                       Device::kWorkspaceBytes, plan_->device->streams().compute),
        "a product of matrices");
}

}  // namespace catchment::cuda
