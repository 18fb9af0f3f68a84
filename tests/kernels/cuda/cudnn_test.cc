// cuDNN's own library, without a GPU: it has a way to compute each convolution that the plugin asks it for,
// on GPUs that are described to it, and compiles its kernels; only loading them takes a GPU. Skipped without
// the library, or before 9.8.
#include <dlfcn.h>

#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/convolution_graph.h"

#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>
#endif

namespace catchment::cuda {
namespace {

using cudnn::Attribute;
using cudnn::Descriptor;
using cudnn::Kind;
using cudnn::Type;

constexpr size_t kFirstWithDescribedDevices = 90800;

// Returns the properties of a GPU that cuDNN needs.
std::string DescribeGpu(int capability, int processors, int shared_bytes) {
  return absl::StrReplaceAll(
      R"({"deviceVer": VERSION, "multiProcessorCount": PROCESSORS, "maxSharedMemoryPerBlockOptin": SHARED,
          "cudaDeviceId": 0, "driverVer": 13000, "maxGridSize": [2147483647, 65535, 65535],
          "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "warpSize": 32,
          "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536,
          "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0,
          "isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000,
          "l2CacheSize": 52428800, "deviceName": "a GPU", "totalGlobalMem": 85000000000})",
      {{"VERSION", absl::StrCat(capability)},
       {"PROCESSORS", absl::StrCat(processors)},
       {"SHARED", absl::StrCat(shared_bytes)}});
}

// Opens the toolkit's cuDNN unless another one is named.
const cudnn::Library& Open() {
  setenv("CATCHMENT_CUDNN", CUDA_LIBRARIES "/libcudnn.so.9", /*overwrite=*/0);
  // Compiling for a GPU takes the driver's library; the toolkit has one that does nothing.
  dlopen(CUDA_LIBRARIES "/stubs/libcuda.so", RTLD_NOW | RTLD_GLOBAL);
  return cudnn::FindLibrary();
}

struct Gpu {
  const char* name;
  int capability, processors, shared_bytes;
};

class CudnnTest : public testing::TestWithParam<Gpu> {};

TEST_P(CudnnTest, HasConfigurationsForTheConvolutionsOfTheExamples) {
  const cudnn::Library& library = Open();
  if (library.api == nullptr) GTEST_SKIP() << "skipped: " << library.description;
  if (library.api->GetVersion() < kFirstWithDescribedDevices)
    GTEST_SKIP() << "skipped: " << library.description << " cannot describe a GPU";
  const auto& [name, capability, processors, shared_bytes] = GetParam();
  const std::string json = DescribeGpu(capability, processors, shared_bytes);
  Descriptor gpu(*library.api, Kind::kDeviceProperties);
  gpu.Set(Attribute::kDeviceJson, Type::kChar, static_cast<int64_t>(json.size()), json.c_str());
  gpu.Finalize();
  const std::vector<ConvolutionSpec> specs = {
      // resnet50: a bottleneck's window, one with a step, and a shortcut.
      {64, 64, 56, 56, 64, 56, 56, 3, 1, 1},
      {64, 256, 28, 28, 256, 14, 14, 3, 2, 1},
      {64, 256, 56, 56, 512, 28, 28, 1, 2, 0},
      // resnet20 for CIFAR-10, and the CNN for MNIST.
      {128, 16, 32, 32, 16, 32, 32, 3, 1, 1},
      {128, 32, 26, 26, 64, 24, 24, 3, 1, 0, /*bias=*/true, /*relu=*/true},
  };
  for (const Precision precision : {Precision::kTf32, Precision::kBfloat16, Precision::kFloat16}) {
    for (const ConvolutionSpec& spec : specs) {
      for (const Convolved convolved : {Convolved::kY, Convolved::kX, Convolved::kW}) {
        // With a bias or a relu the plugin rounds no output.
        for (const bool rounds : {false, Is16Bit(precision) && !spec.bias}) {
          ConvolutionSpec asked = spec;
          asked.rounds_x = asked.rounds_y = rounds;
          const cudnn::ConvolutionGraph graph(*library.api, nullptr, precision, convolved, asked);
          EXPECT_FALSE(graph.ListConfigs(&gpu).empty())
              << (rounds ? "rounded, " : "") << NameOf(precision) << ", " << spec.channels << " channels, "
              << spec.filters << " filters, " << static_cast<int>(convolved);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, CudnnTest,
                         testing::Values(Gpu{"H100", 900, 132, 232448}, Gpu{"A100", 800, 108, 166912}),
                         [](const auto& info) { return info.param.name; });

// Each in a process of its own, since the library is opened once.
TEST(FillsProcessorsTest, GradientsOfFewWeightsStayWithPatchesIn16Bits) {
  // {samples, channels, in, in, filters, out, out, kernel_size, stride, padding}
  const std::vector<ConvolutionSpec> few = {
      // resnet20, its largest; the CNN for MNIST; resnet50, up to its third stage.
      {128, 64, 8, 8, 64, 8, 8, 3, 1, 1},       {128, 32, 26, 26, 64, 24, 24, 3, 1, 0},
      {64, 128, 28, 28, 128, 28, 28, 3, 1, 1},  {64, 256, 14, 14, 256, 14, 14, 3, 1, 1},
      {64, 512, 28, 28, 1024, 14, 14, 1, 2, 0},
  };
  const std::vector<ConvolutionSpec> many = {
      // resnet50, its last stage.
      {64, 512, 7, 7, 512, 7, 7, 3, 1, 1},
      {64, 1024, 14, 14, 2048, 7, 7, 1, 2, 0},
  };
  for (const Precision precision : {Precision::kBfloat16, Precision::kFloat16}) {
    for (const ConvolutionSpec& spec : few) EXPECT_FALSE(FillsProcessors(precision, spec)) << spec.filters;
    for (const ConvolutionSpec& spec : many) EXPECT_TRUE(FillsProcessors(precision, spec)) << spec.filters;
  }
  for (const ConvolutionSpec& spec : few) EXPECT_TRUE(FillsProcessors(Precision::kTf32, spec));
}

TEST(CudnnLibraryTest, SaysWhyThereIsNone) {
  const auto with = [](const char* variable) {
    setenv("CATCHMENT_CUDNN", variable, /*overwrite=*/1);
    const cudnn::Library& library = cudnn::FindLibrary();
    std::fprintf(stderr, "%s", library.description.c_str());
    std::exit(library.api == nullptr ? 0 : 1);
  };
  EXPECT_EXIT(with("off"), testing::ExitedWithCode(0), "CATCHMENT_CUDNN=off");
  EXPECT_EXIT(with("/nowhere/libcudnn.so.9"), testing::ExitedWithCode(0),
              "no cuDNN: .*/nowhere/libcudnn.so.9");
  EXPECT_EXIT(with("libm.so.6"), testing::ExitedWithCode(0), "libm.so.6 lacks functions of cuDNN 9");
}

#ifdef CUDNN_MAJOR
// FillsProcessors rests on it: with a float32 result, the gradient of weights has one engine for 16 bits, and
// several for TF32.
TEST(CudnnEnginesTest, OneComputesTheGradientOfWeightsIn16Bits) {
  const cudnn::Library& library = Open();
  if (library.api == nullptr) GTEST_SKIP() << "skipped: " << library.description;
  if (library.api->GetVersion() < kFirstWithDescribedDevices)
    GTEST_SKIP() << "skipped: " << library.description << " cannot describe a GPU";
  const std::string json = DescribeGpu(900, 132, 232448);
  Descriptor gpu(*library.api, Kind::kDeviceProperties);
  gpu.Set(Attribute::kDeviceJson, Type::kChar, static_cast<int64_t>(json.size()), json.c_str());
  gpu.Finalize();
  const auto engines = [&](Precision precision) {
    const ConvolutionSpec spec = {64, 64, 56, 56, 64, 56, 56, 3, 1, 1};
    const cudnn::ConvolutionGraph graph(*library.api, nullptr, precision, Convolved::kW, spec);
    std::set<int64_t> numbers;
    for (const Descriptor& config : graph.ListConfigs(&gpu)) {
      const Descriptor engine(*library.api, Kind::kEngine);
      void* raw = engine.raw();
      int64_t count = 0, number = -1;
      cudnn::Check(*library.api,
                   library.api->GetAttribute(config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
                   "an engine");
      cudnn::Check(*library.api,
                   library.api->GetAttribute(raw, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count,
                                             &number),
                   "an engine's number");
      numbers.insert(number);
    }
    return numbers;
  };
  EXPECT_THAT(engines(Precision::kBfloat16), testing::SizeIs(1));
  EXPECT_THAT(engines(Precision::kFloat16), testing::SizeIs(1));
  EXPECT_THAT(engines(Precision::kTf32), testing::SizeIs(testing::Gt(1)));
}

// The numbers that cudnn_api.h repeats.
TEST(CudnnApiTest, HasTheNumbersOfTheHeaders) {
  const std::vector<std::pair<Kind, int>> kinds = {
      {Kind::kPointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
      {Kind::kConvolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
      {Kind::kEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR},
      {Kind::kEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR},
      {Kind::kEngineHeuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR},
      {Kind::kExecutionPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR},
      {Kind::kForward, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR},
      {Kind::kBackwardFilter, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR},
      {Kind::kBackwardData, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR},
      {Kind::kPointwiseOperation, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR},
      {Kind::kOperationGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
      {Kind::kVariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR},
      {Kind::kTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR}};
  for (const auto& [kind, number] : kinds) EXPECT_EQ(static_cast<int>(kind), number);
  const std::vector<std::pair<Type, int>> types = {{Type::kHandle, CUDNN_TYPE_HANDLE},
                                                   {Type::kDataType, CUDNN_TYPE_DATA_TYPE},
                                                   {Type::kBoolean, CUDNN_TYPE_BOOLEAN},
                                                   {Type::kInt64, CUDNN_TYPE_INT64},
                                                   {Type::kFloat, CUDNN_TYPE_FLOAT},
                                                   {Type::kPointer, CUDNN_TYPE_VOID_PTR},
                                                   {Type::kConvolutionMode, CUDNN_TYPE_CONVOLUTION_MODE},
                                                   {Type::kHeuristicsMode, CUDNN_TYPE_HEUR_MODE},
                                                   {Type::kNumericalNote, CUDNN_TYPE_NUMERICAL_NOTE},
                                                   {Type::kPointwiseMode, CUDNN_TYPE_POINTWISE_MODE},
                                                   {Type::kDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR},
                                                   {Type::kChar, CUDNN_TYPE_CHAR}};
  for (const auto& [type, number] : types) EXPECT_EQ(static_cast<int>(type), number);
  const std::vector<std::pair<Attribute, int>> attributes = {
      {Attribute::kPointwiseMode, CUDNN_ATTR_POINTWISE_MODE},
      {Attribute::kPointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC},
      {Attribute::kConvolutionType, CUDNN_ATTR_CONVOLUTION_COMP_TYPE},
      {Attribute::kConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE},
      {Attribute::kConvolutionDilations, CUDNN_ATTR_CONVOLUTION_DILATIONS},
      {Attribute::kConvolutionStrides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES},
      {Attribute::kConvolutionPostPaddings, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS},
      {Attribute::kConvolutionPrePaddings, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS},
      {Attribute::kConvolutionDimensions, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS},
      {Attribute::kHeuristicsMode, CUDNN_ATTR_ENGINEHEUR_MODE},
      {Attribute::kHeuristicsGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH},
      {Attribute::kHeuristicsResults, CUDNN_ATTR_ENGINEHEUR_RESULTS},
      {Attribute::kConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE},
      {Attribute::kPlanHandle, 400},  // deprecated in newer headers
      {Attribute::kPlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG},
      {Attribute::kPlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE},
      {Attribute::kForwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA},
      {Attribute::kForwardBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
      {Attribute::kForwardConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC},
      {Attribute::kForwardW, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W},
      {Attribute::kForwardX, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X},
      {Attribute::kForwardY, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
      {Attribute::kBackwardDataAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA},
      {Attribute::kBackwardDataBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
      {Attribute::kBackwardDataConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC},
      {Attribute::kBackwardDataW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W},
      {Attribute::kBackwardDataDx, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX},
      {Attribute::kBackwardDataDy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
      {Attribute::kBackwardFilterAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA},
      {Attribute::kBackwardFilterBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
      {Attribute::kBackwardFilterConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC},
      {Attribute::kBackwardFilterDw, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW},
      {Attribute::kBackwardFilterX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X},
      {Attribute::kBackwardFilterDy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
      {Attribute::kOperationPointwise, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR},
      {Attribute::kOperationX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC},
      {Attribute::kOperationB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC},
      {Attribute::kOperationY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
      {Attribute::kGraphHandle, 800},  // deprecated in newer headers
      {Attribute::kGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS},
      {Attribute::kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT},
      {Attribute::kTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE},
      {Attribute::kTensorDimensions, CUDNN_ATTR_TENSOR_DIMENSIONS},
      {Attribute::kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES},
      {Attribute::kTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID},
      {Attribute::kTensorIsVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL},
      {Attribute::kPackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS},
      {Attribute::kPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS},
      {Attribute::kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE},
      {Attribute::kEngineNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE}};
  for (const auto& [attribute, number] : attributes) EXPECT_EQ(static_cast<int>(attribute), number);
  EXPECT_EQ(static_cast<int>(cudnn::DataType::kHalf), CUDNN_DATA_HALF);
  EXPECT_EQ(static_cast<int>(cudnn::DataType::kBfloat16), CUDNN_DATA_BFLOAT16);
  EXPECT_EQ(static_cast<int>(cudnn::ConvolutionMode::kCrossCorrelation), CUDNN_CROSS_CORRELATION);
  EXPECT_EQ(static_cast<int>(cudnn::PointwiseMode::kAdd), CUDNN_POINTWISE_ADD);
  EXPECT_EQ(static_cast<int>(cudnn::PointwiseMode::kIdentity), CUDNN_POINTWISE_IDENTITY);
  EXPECT_EQ(static_cast<int>(cudnn::PointwiseMode::kRelu), CUDNN_POINTWISE_RELU_FWD);
  EXPECT_EQ(static_cast<int>(cudnn::HeuristicsMode::kFallback), CUDNN_HEUR_MODE_FALLBACK);
  EXPECT_EQ(static_cast<int>(cudnn::HeuristicsMode::kUsual), CUDNN_HEUR_MODE_A);
  EXPECT_EQ(static_cast<int>(cudnn::Note::kReducedPrecisionReduction),
            CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
  EXPECT_EQ(static_cast<int>(cudnn::Note::kNondeterministic), CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
}
#endif

}  // namespace
}  // namespace catchment::cuda
