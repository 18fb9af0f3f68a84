// The part of cuDNN 9's C interface that convolutions need: descriptors with attributes, which make a graph
// of operations, and plans that execute it. It is declared here, so that the plugin is built without cuDNN
// and opens the library if there is one. tests/kernels/cuda/cudnn_test.cc compares the numbers with those of
// cuDNN's headers.
#ifndef CATCHMENT_KERNELS_CUDA_CUDNN_API_H_
#define CATCHMENT_KERNELS_CUDA_CUDNN_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace catchment::cuda::cudnn {

constexpr int kSuccess = 0;
constexpr size_t kMinVersion = 90000;  // cudnnGetVersion() of 9.0.0

// cudnnBackendDescriptorType_t
enum class Kind : int {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristics = 4,
  kExecutionPlan = 5,
  kForward = 10,
  kBackwardFilter = 11,
  kBackwardData = 12,
  kPointwiseOperation = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kDeviceProperties = 38,
};

// cudnnBackendAttributeType_t
enum class Type : int {
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kFloat = 4,
  kPointer = 6,
  kConvolutionMode = 7,
  kHeuristicsMode = 8,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kChar = 24,
};

// cudnnBackendAttributeName_t
enum class Attribute : int {
  kPointwiseMode = 0,
  kPointwisePrecision = 1,
  kConvolutionType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionDimensions = 106,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kHeuristicsDevice = 204,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kBackwardDataAlpha = 706,
  kBackwardDataBeta = 707,
  kBackwardDataConvolution = 708,
  kBackwardDataW = 709,
  kBackwardDataDx = 710,
  kBackwardDataDy = 711,
  kBackwardFilterAlpha = 712,
  kBackwardFilterBeta = 713,
  kBackwardFilterConvolution = 714,
  kBackwardFilterDw = 715,
  kBackwardFilterX = 716,
  kBackwardFilterDy = 717,
  kOperationPointwise = 750,
  kOperationX = 751,
  kOperationB = 752,
  kOperationY = 753,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorIsVirtual = 907,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNotes = 1303,
  kDeviceJson = 2702,
};

enum class DataType : int { kFloat = 0, kHalf = 2, kBfloat16 = 9 };        // cudnnDataType_t
enum class ConvolutionMode : int { kCrossCorrelation = 1 };                // cudnnConvolutionMode_t
enum class PointwiseMode : int { kAdd = 0, kIdentity = 21, kRelu = 100 };  // cudnnPointwiseMode_t
enum class HeuristicsMode : int { kFallback = 2, kUsual = 3 };             // cudnnBackendHeurMode_t
enum class Note : int {
  kReducedPrecisionReduction = 2,
  kNondeterministic = 4
};  // cudnnBackendNumericalNote_t

// The library's functions, without "cudnn" and "cudnnBackend".
struct Api {
  size_t (*GetVersion)();
  const char* (*GetErrorString)(int status);
  void (*GetLastErrorString)(char* message, size_t size);
  int (*Create)(void** handle);
  int (*Destroy)(void* handle);
  int (*SetStream)(void* handle, void* stream);
  int (*CreateDescriptor)(int kind, void** descriptor);
  int (*DestroyDescriptor)(void* descriptor);
  int (*SetAttribute)(void* descriptor, int name, int type, int64_t count, const void* values);
  int (*GetAttribute)(void* descriptor, int name, int type, int64_t room, int64_t* count, void* values);
  int (*Finalize)(void* descriptor);
  int (*Execute)(void* handle, void* plan, void* variant_pack);
};

struct Library {
  const Api* api = nullptr;  // null: there is none that can be used
  std::string description;   // "cuDNN 9.19.0", or why there is none
};

// Returns the process's library: that of $CATCHMENT_CUDNN, a path or "off"; by default libcudnn.so.9, as the
// dynamic linker finds it.
const Library& FindLibrary();

}  // namespace catchment::cuda::cudnn

#endif  // CATCHMENT_KERNELS_CUDA_CUDNN_API_H_
