// Gemm with cuBLASLt, which is column-major: the row-major c = op(a) op(b) is its c' = op(b)' op(a)', where a
// stored row-major matrix already is its transpose.
#include "kernels/cuda/gemm.h"

#include <cublasLt.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "kernels/cuda/divisor.h"

namespace catchment::cuda {
namespace {

void Check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(std::string(what) + ": cuBLAS error " + std::to_string(static_cast<int>(status)) + ", " +
              cublasLtGetStatusString(status));
}

// Returns the process's handle of a device, which must be the calling thread's.
cublasLtHandle_t HandleOf(const Device& device) {
  static std::mutex mu;
  static auto* const handles = new std::map<int, cublasLtHandle_t>;
  const std::lock_guard<std::mutex> lock(mu);
  cublasLtHandle_t& handle = (*handles)[device.index()];
  if (handle == nullptr) Check(cublasLtCreate(&handle), "cuBLASLt");
  return handle;
}

cublasLtMatrixLayout_t Layout(cudaDataType type, int64_t rows, int64_t columns, int64_t leading) {
  cublasLtMatrixLayout_t layout;
  Check(cublasLtMatrixLayoutCreate(&layout, type, rows, columns, leading), "a matrix layout");
  return layout;
}

// Returns the type of factors, and of rounded results; other results and biases are CUDA_R_32F.
// cublasLtMatmul has all pairs of types with CUBLAS_COMPUTE_32F, scale and bias in float32.
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

bool HasEpilogue(const GemmSpec& spec) { return spec.bias || spec.relu; }

cublasLtEpilogue_t Epilogue(const GemmSpec& spec) {
  if (spec.bias) return spec.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  return spec.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

// An epilogue as a kernel.
struct Finish {
  float* c;
  const float* bias;  // or null
  bool relu;
  Divisor by_columns;
  int64_t ldc;

  __device__ void operator()(int i) const {
    int column;
    float* const value = c + by_columns.Divide(i, &column) * ldc + column;
    const float sum = *value + (bias != nullptr ? bias[column] : 0.0f);
    *value = relu && !(sum > 0) ? 0.0f : sum;
  }
};

// For messages, with all properties by which cuBLASLt chooses an algorithm.
std::string Describe(const GemmSpec& spec, Precision precision) {
  const auto matrix = [](const char* name, bool transposed, int64_t rows, int64_t columns, int64_t stride,
                         int alignment) {
    return std::string(name) + " " + std::to_string(rows) + " x " + std::to_string(columns) +
           (transposed ? " transposed" : "") + " (rows of " + std::to_string(stride) + ", aligned to " +
           std::to_string(alignment) + ")";
  };
  return std::string("the product in ") + NameOf(precision) + " of " +
         matrix("a", spec.transpose_a, spec.transpose_a ? spec.k : spec.m, spec.transpose_a ? spec.m : spec.k,
                spec.lda, spec.a_alignment) +
         " and " +
         matrix("b", spec.transpose_b, spec.transpose_b ? spec.n : spec.k, spec.transpose_b ? spec.k : spec.n,
                spec.ldb, spec.b_alignment) +
         " to " + NameOf(spec.rounds_result ? precision : Precision::kFloat32) + " " +
         matrix("c", false, spec.m, spec.n, spec.ldc, spec.c_alignment) +
         (spec.accumulate ? ", accumulated" : "") + (spec.bias ? ", with a bias" : "") +
         (spec.relu ? ", with relu" : "");
}

// The alignment in bytes of the vector that an epilogue adds, so that it may load several values at a time.
// The biases of a layer begin where its weights end.
constexpr uintptr_t kBiasAlignment = 16;

}  // namespace

struct Gemm::Plan {
  Device* device;
  GemmSpec spec;
  std::string description;
  float beta;
  std::optional<DeviceArray<>> bias;  // a copy, for one that is not aligned; null without bias
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm;
  bool finishes = false;  // a kernel does what the epilogue would

  ~Plan() {
    for (cublasLtMatrixLayout_t layout : {first, second, result}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    if (product != nullptr) cublasLtMatmulDescDestroy(product);
  }

  // Chooses an algorithm: as it should be; without epilogue; and both for matrices that are aligned to their
  // values only.
  void Choose() {
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    for (const bool aligned : {true, false}) {
      for (const bool separate : {false, true}) {
        if (separate && !HasEpilogue(spec)) continue;
        status = Try(aligned, separate);
        if (status == CUBLAS_STATUS_SUCCESS) return;
      }
    }
    throw Error("cuBLASLt " + std::to_string(cublasLtGetVersion()) + " has no algorithm for " + description +
                ", nor with less alignment" + (HasEpilogue(spec) ? " or without bias and relu" : "") +
                ": cuBLAS error " + std::to_string(static_cast<int>(status)) + ", " +
                cublasLtGetStatusString(status) + "; CUBLASLT_LOG_LEVEL=5 logs its calls");
  }

  cublasStatus_t Try(bool aligned, bool separate) {
    finishes = separate;
    const bool adds_bias = bias && !separate;
    Set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, separate ? CUBLASLT_EPILOGUE_DEFAULT : Epilogue(spec));
    // It uses the alignment of the address, and does not read the memory.
    if (bias) Set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, adds_bias ? kBiasAlignment : uintptr_t{0});
    cublasLtMatmulPreference_t preference;
    Check(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    Set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Device::kWorkspaceBytes);
    // The parts of a split sum are added up in float32, also in place unless the result has 16 bits.
    Set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE} |
            (spec.rounds_result ? 0u : uint32_t{CUBLASLT_REDUCTION_SCHEME_INPLACE}));
    const int bytes = BytesOf(device->precision());
    const auto first_bytes = static_cast<uint32_t>(aligned ? spec.b_alignment : bytes);
    const auto second_bytes = static_cast<uint32_t>(aligned ? spec.a_alignment : bytes);
    const int value_bytes = spec.rounds_result ? bytes : int{sizeof(float)};
    const auto result_bytes = static_cast<uint32_t>(aligned ? spec.c_alignment : value_bytes);
    Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, first_bytes);
    Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, second_bytes);
    Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result_bytes);
    Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result_bytes);
    constexpr int kCandidates = 4;
    cublasLtMatmulHeuristicResult_t found[kCandidates];
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        HandleOf(*device), product, first, second, result, result, preference, kCandidates, found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i) {
      if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
      algorithm = found[i].algo;
      return CUBLAS_STATUS_SUCCESS;
    }
    return status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status;
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

Gemm::Gemm(Device* device, const GemmSpec& spec)
    : plan_(new Plan{.device = device, .spec = spec, .description = Describe(spec, device->precision())}) {
  Plan& plan = *plan_;
  plan.beta = spec.accumulate ? 1.0f : 0.0f;
  if (spec.bias) plan.bias.emplace(device, spec.n);
  const bool tf32 = device->precision() == Precision::kTf32;
  Check(cublasLtMatmulDescCreate(&plan.product, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                 CUDA_R_32F),
        "a product");
  Set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, spec.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(plan.product, CUBLASLT_MATMUL_DESC_TRANSB, spec.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  const cudaDataType type = TypeOf(device->precision());
  plan.first =
      spec.transpose_b ? Layout(type, spec.k, spec.n, spec.ldb) : Layout(type, spec.n, spec.k, spec.ldb);
  plan.second =
      spec.transpose_a ? Layout(type, spec.m, spec.k, spec.lda) : Layout(type, spec.k, spec.m, spec.lda);
  plan.result = Layout(spec.rounds_result ? type : CUDA_R_32F, spec.n, spec.m, spec.ldc);
  plan.Choose();
}

Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;

void Gemm::Run(const void* a, const void* b, const float* bias, void* c) {
  Plan& plan = *plan_;
  const float one = 1;
  if (plan.bias && !plan.finishes) Set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, plan.Aligned(bias));
  const cublasStatus_t status =
      cublasLtMatmul(HandleOf(*plan.device), plan.product, &one, b, plan.first, a, plan.second, &plan.beta, c,
                     plan.result, c, plan.result, &plan.algorithm, plan.device->workspace(),
                     Device::kWorkspaceBytes, plan.device->streams().compute);
  if (status != CUBLAS_STATUS_SUCCESS) Check(status, plan.description.c_str());
  plan.device->Launched(plan.description.c_str());
  if (!plan.finishes) return;
  plan.device->ForEach(plan.spec.m * plan.spec.n,
                       Finish{static_cast<float*>(c), plan.spec.bias ? bias : nullptr, plan.spec.relu,
                              Divisor(plan.spec.n), plan.spec.ldc});
}

}  // namespace catchment::cuda
