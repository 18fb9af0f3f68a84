// The functions of cuBLASLt that the plugin calls, for column-major matrices, in plain loops. They check what
// the library would check or silently read wrongly: sizes of attributes, shapes, leading dimensions, types,
// the alignments that an algorithm was chosen for, and that each matrix lies in its allocation.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "tests/kernels/cuda/ptx/kernel.h"
#include "tests/kernels/cuda/ptx/runtime.h"

namespace catchment::ptx {
namespace {

constexpr uintptr_t kBiasAlignment = 16;

struct Layout {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t leading;

  size_t value_bytes() const { return type == CUDA_R_32F ? 4 : 2; }
  size_t bytes() const { return ((columns - 1) * leading + rows) * value_bytes(); }
};

struct Product {
  cublasComputeType_t compute;
  cudaDataType scale;
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;

  bool relu() const { return epilogue == CUBLASLT_EPILOGUE_RELU || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS; }
  bool has_bias() const {
    return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
  }
};

struct Preference {
  uint64_t workspace_bytes = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of a, b, c and d
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
};

// The content of an emulated cublasLtMatmulAlgo_t: the alignments that the algorithm was chosen for.
struct Algorithm {
  uint32_t alignments[4];
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

// A matrix as float32, by row and column.
struct Matrix {
  const void* data;
  Layout layout;
  bool transposed;
  bool tf32;

  float At(int64_t row, int64_t column) const {
    const int64_t at = transposed ? column + row * layout.leading : row + column * layout.leading;
    if (layout.type == CUDA_R_32F) {
      const float value = static_cast<const float*>(data)[at];
      return tf32 ? DropToTf32(value) : value;
    }
    const uint16_t bits = static_cast<const uint16_t*>(data)[at];
    if (layout.type == CUDA_R_16BF) return std::bit_cast<float>(uint32_t{bits} << 16);
    return static_cast<float>(std::bit_cast<_Float16>(bits));
  }

  // Tensor cores read the 19 highest bits. Kernels may round to them before, as gemm_host.cc does.
  static float DropToTf32(float value) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & ~0x1fffu);
  }
};

[[noreturn]] void ProductFault(const std::string& what) { Fault("cublasLtMatmul: " + what); }

void CheckShapes(const Product& product, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const uint64_t m = product.transpose_a ? a.columns : a.rows, k = product.transpose_a ? a.rows : a.columns;
  const uint64_t n = product.transpose_b ? b.rows : b.columns,
                 inner = product.transpose_b ? b.columns : b.rows;
  for (const Layout* layout : {&a, &b, &c, &d}) {
    if (layout->leading < static_cast<int64_t>(layout->rows)) {
      ProductFault("a leading dimension of " + std::to_string(layout->leading) + " for columns of " +
                   std::to_string(layout->rows) + " values");
    }
  }
  if (k != inner || c.rows != m || c.columns != n || d.rows != m || d.columns != n) {
    ProductFault("shapes that do not match: m " + std::to_string(m) + ", n " + std::to_string(n) + ", k " +
                 std::to_string(k) + " and " + std::to_string(inner) + ", result " + std::to_string(c.rows) +
                 " x " + std::to_string(c.columns));
  }
  const bool tf32 = product.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if (a.type != b.type || c.type != d.type || (d.type != CUDA_R_32F && d.type != a.type) ||
      product.scale != CUDA_R_32F || (tf32 && a.type != CUDA_R_32F)) {
    ProductFault("a combination of types that the library does not have");
  }
}

void CheckOperand(const char* name, const void* data, size_t bytes, uint32_t alignment) {
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    ProductFault(std::string(name) + " is not aligned to the " + std::to_string(alignment) +
                 " bytes that the algorithm was chosen for");
  }
  if (!TheRuntime().device.Contains(data, bytes)) ProductFault(std::string(name) + " leaves its allocation");
}

// $CATCHMENT_PTX_CUBLASLT_REFUSES: products that the library has no algorithm for, as some versions may have
// none: "epilogue" those with a bias or relu, "alignment" those of matrices that are aligned to more than 4
// bytes, "both", or "all".
bool IsRefused(const Product& product, const Preference& preference) {
  const char* const variable = std::getenv("CATCHMENT_PTX_CUBLASLT_REFUSES");
  const std::string refused = variable != nullptr ? variable : "";
  const bool epilogue = product.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  const bool aligned = std::any_of(std::begin(preference.alignments), std::end(preference.alignments),
                                   [](uint32_t alignment) { return alignment > 4; });
  return refused == "all" || (epilogue && (refused == "epilogue" || refused == "both")) ||
         (aligned && (refused == "alignment" || refused == "both"));
}

template <typename T, typename Handle>
T* As(Handle handle) {
  return reinterpret_cast<T*>(handle);
}

template <typename T>
void SetAttribute(const void* value, size_t bytes, T* to) {
  if (bytes != sizeof(T)) Fault("a cuBLASLt attribute of " + std::to_string(bytes) + " bytes");
  std::memcpy(to, value, sizeof(T));
}

struct Multiplication {
  Product product;
  Matrix a, b;
  float alpha, beta;
  const void* c;
  void* d;
  Layout result;
  void* workspace;
  size_t workspace_bytes;

  Operation Describe() const {
    const double m = static_cast<double>(result.rows), n = static_cast<double>(result.columns);
    const auto k = static_cast<double>(product.transpose_a ? a.layout.rows : a.layout.columns);
    const auto factor_bytes = static_cast<double>(a.layout.value_bytes());
    const auto result_bytes = static_cast<double>(result.value_bytes());
    return {.kind = Operation::Kind::kProduct,
            .bytes_read = factor_bytes * (m * k + n * k) + (beta != 0 ? result_bytes * m * n : 0),
            .bytes_written = result_bytes * m * n,
            .multiplications = m * n * k,
            .value_bytes = static_cast<int>(factor_bytes)};
  }

  void Run() const {
    // The library may write anything there.
    std::memset(workspace, 0x77, workspace_bytes);
    const auto m = static_cast<int64_t>(result.rows), n = static_cast<int64_t>(result.columns);
    const auto k = static_cast<int64_t>(product.transpose_a ? a.layout.rows : a.layout.columns);
    std::vector<float> row(k);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t p = 0; p < k; ++p) row[p] = a.At(i, p);
      for (int64_t j = 0; j < n; ++j) {
        float sum = 0;
        for (int64_t p = 0; p < k; ++p) sum += row[p] * b.At(p, j);
        Finish(alpha * sum, i, j);
      }
    }
  }

  void Finish(float value, int64_t row, int64_t column) const {
    const int64_t at = row + column * result.leading;
    if (beta != 0) value += beta * Matrix{c, result, false, false}.At(row, column);
    if (product.has_bias()) value += static_cast<const float*>(product.bias)[row];
    if (product.relu()) value = std::max(value, 0.0f);
    if (result.type == CUDA_R_32F) {
      static_cast<float*>(d)[at] = value;
    } else {
      static_cast<uint16_t*>(d)[at] = result.type == CUDA_R_16BF ? Bfloat16Bits(value) : HalfBits(value);
    }
  }
};

}  // namespace
}  // namespace catchment::ptx

using catchment::ptx::Algorithm;
using catchment::ptx::As;
using catchment::ptx::Fault;
using catchment::ptx::Layout;
using catchment::ptx::Matrix;
using catchment::ptx::Multiplication;
using catchment::ptx::Preference;
using catchment::ptx::Product;
using catchment::ptx::Runtime;
using catchment::ptx::SetAttribute;
using catchment::ptx::TheRuntime;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int library;
  *handle = reinterpret_cast<cublasLtHandle_t>(&library);
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() { return 0; }

const char* cublasLtGetStatusString(cublasStatus_t) { return "an error of the PTX emulator"; }

cublasStatus_t cublasGetProperty(libraryPropertyType, int* value) {
  *value = 0;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, leading});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete As<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *product = reinterpret_cast<cublasLtMatmulDesc_t>(new Product{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete As<Product>(product);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  Product* const product = As<Product>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      SetAttribute(value, bytes, &product->transpose_a);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      SetAttribute(value, bytes, &product->transpose_b);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      SetAttribute(value, bytes, &product->epilogue);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      SetAttribute(value, bytes, &product->bias);
      break;
    default:
      Fault("cuBLASLt: unknown attribute " + std::to_string(attribute) + " of a product");
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete As<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  Preference* const preference = As<Preference>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      SetAttribute(value, bytes, &preference->workspace_bytes);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      SetAttribute(value, bytes, &preference->alignments[0]);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      SetAttribute(value, bytes, &preference->alignments[1]);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      SetAttribute(value, bytes, &preference->alignments[2]);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      SetAttribute(value, bytes, &preference->alignments[3]);
      break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      SetAttribute(value, bytes, &preference->reductions);
      break;
    default:
      Fault("cuBLASLt: unknown attribute " + std::to_string(attribute) + " of a preference");
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  catchment::ptx::CheckShapes(*As<Product>(product), *As<Layout>(a), *As<Layout>(b), *As<Layout>(c),
                              *As<Layout>(d));
  if (catchment::ptx::IsRefused(*As<Product>(product), *As<Preference>(preference)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // Both round the parts of a split sum to the type of the result.
  constexpr uint32_t kInResult = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  if (As<Layout>(d)->type != CUDA_R_32F && (As<Preference>(preference)->reductions & kInResult) != 0)
    Fault("cuBLASLt: the parts of a sum may be rounded to 16 bits");
  *results = {};
  std::memcpy(&results->algo, As<Preference>(preference)->alignments, sizeof(Algorithm));
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product_handle, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  Runtime& runtime = TheRuntime();
  const std::lock_guard<std::mutex> lock(runtime.mu);
  const Product product = *As<Product>(product_handle);
  const Layout result = *As<Layout>(d_layout);
  const bool tf32 = product.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const Matrix first{a, *As<Layout>(a_layout), product.transpose_a != CUBLAS_OP_N, tf32};
  const Matrix second{b, *As<Layout>(b_layout), product.transpose_b != CUBLAS_OP_N, tf32};
  catchment::ptx::CheckShapes(product, first.layout, second.layout, *As<Layout>(c_layout), result);
  Algorithm algorithm;
  std::memcpy(&algorithm, algo, sizeof algorithm);
  catchment::ptx::CheckOperand("a", a, first.layout.bytes(), algorithm.alignments[0]);
  catchment::ptx::CheckOperand("b", b, second.layout.bytes(), algorithm.alignments[1]);
  catchment::ptx::CheckOperand("c", c, result.bytes(), algorithm.alignments[2]);
  catchment::ptx::CheckOperand("d", d, result.bytes(), algorithm.alignments[3]);
  catchment::ptx::CheckOperand("the workspace", workspace, workspace_bytes, 1);
  if (product.has_bias()) {
    catchment::ptx::CheckOperand("the bias", product.bias, result.rows * sizeof(float),
                                 catchment::ptx::kBiasAlignment);
  }
  const Multiplication multiplication{
      product, first,  second,    *static_cast<const float*>(alpha),      *static_cast<const float*>(beta), c,
      d,       result, workspace, std::min<size_t>(workspace_bytes, 4096)};
  const bool run = runtime.AddRecord(multiplication.Describe());
  runtime.scheduler.Add(Runtime::StreamOf(stream, "a product"), [multiplication, run] {
    if (run) multiplication.Run();
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
