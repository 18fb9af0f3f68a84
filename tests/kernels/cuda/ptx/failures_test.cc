// The messages where the driver, cuBLASLt or a kernel fails, and the computations that still work then.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/initializer.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/loader.h"
#include "worker/model/network.h"

extern "C" const CatchmentCudaPlugin* catchment_cuda_plugin();

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FailuresTest : public testing::Test {
 protected:
  ~FailuresTest() override {
    for (const std::string& variable : set_) unsetenv(variable.c_str());
  }
  void Set(const std::string& variable, const std::string& value) {
    setenv(variable.c_str(), value.c_str(), 1);
    set_.push_back(variable);
  }

 private:
  std::vector<std::string> set_;
};

constexpr char kDense[] = "layers { dense { units: 7 } } layers { relu {} } layers { dense { units: 4 } }";

absl::StatusOr<std::unique_ptr<Network>> Make(const std::string& model) {
  v1::Model parsed;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(model, &parsed)) << model;
  return Network::Create(parsed, SampleShape::Vector(13), 4, {.max_batch_size = 3},
                         *MakeCudaBackend(*catchment_cuda_plugin(), {}));
}

std::vector<float> Train(const std::string& model) {
  const auto network = *Make(model);
  std::vector<float> weights(network->num_parameters()), gradient(network->num_parameters());
  InitializeParameters(network->layers(), 1, {0, network->num_parameters()}, weights.data());
  std::vector<float> inputs(3 * 13);
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<float>(i % 5) - 2;
  const std::vector<int32_t> labels = {0, 1, 3};
  const std::vector<uint64_t> ids = {1, 2, 3};
  network->Train(weights, {inputs.data(), labels.data(), ids.data(), 3}, absl::MakeSpan(gradient));
  return gradient;
}

std::string ProbeError() { return std::string(ListCudaDevices(*catchment_cuda_plugin()).status().message()); }

TEST_F(FailuresTest, ADriverThatIsTooOldIsNamedWithBothVersionsAndTheWaysOut) {
  EXPECT_TRUE(ListCudaDevices(*catchment_cuda_plugin()).ok());
  Set("CATCHMENT_PTX_DRIVER", "12040");
  EXPECT_THAT(ProbeError(), AllOf(HasSubstr("the NVIDIA driver supports CUDA 12.4 and the plugin needs 13."),
                                  HasSubstr("install a newer driver"), HasSubstr("cuda-compat-13-"),
                                  HasSubstr("LD_LIBRARY_PATH")));
}

TEST_F(FailuresTest, ADriverThatIsMissingIsNamed) {
  Set("CATCHMENT_PTX_DRIVER", "0");
  EXPECT_THAT(ProbeError(), HasSubstr("there is no NVIDIA driver (CUDA error 35"));
}

TEST_F(FailuresTest, ProductsAreComputedWhereCublasLacksTheirEpilogueOrAlignment) {
  const std::vector<float> want = Train(kDense);
  for (const std::string refused : {"epilogue", "alignment", "both"}) {
    SCOPED_TRACE(refused);
    Set("CATCHMENT_PTX_CUBLASLT_REFUSES", refused);
    EXPECT_EQ(Train(kDense), want);
  }
}

TEST_F(FailuresTest, AProductThatCublasLacksIsNamedWithSizesTypesAndAlignments) {
  Set("CATCHMENT_PTX_CUBLASLT_REFUSES", "all");
  const std::string message(Make(kDense).status().message());
  EXPECT_THAT(
      message,
      HasSubstr("has no algorithm for the product in float32 of a 3 x 13 (rows of 13, aligned to 256) and b "
                "7 x 13 transposed (rows of 13, aligned to 256) to float32 c 3 x 7 (rows of 7, aligned to "
                "256), with a bias, with relu, "
                "nor with less alignment or without bias and relu: cuBLAS error 15"));
  EXPECT_THAT(message, HasSubstr("CUBLASLT_LOG_LEVEL=5"));
}

constexpr char kNorm[] =
    "layers { dense { units: 4 } } layers { batch_norm {} } layers { dense { units: 4 } }";

using FailuresDeathTest = FailuresTest;

TEST_F(FailuresDeathTest, AFaultOfAKernelIsNamedWithTheVariable) {
  Set("CATCHMENT_PTX_ORDER", "lazy");
  Set("CATCHMENT_PTX_FAULT", "Normalize");
  Set("CATCHMENT_CUDA_SYNC", "1");
  EXPECT_DEATH(Train(kNorm),
               "the CUDA device failed: the kernel of .*BatchNorm::.*Normalize.* failed: CUDA error 700");
}

TEST_F(FailuresDeathTest, WithoutTheVariableTheErrorSaysThatItNamesTheKernel) {
  Set("CATCHMENT_PTX_ORDER", "lazy");
  Set("CATCHMENT_PTX_FAULT", "Normalize");
  EXPECT_DEATH(Train(kNorm),
               "the CUDA device failed: the device's work failed .CATCHMENT_CUDA_SYNC=1 "
               "names the kernel.: CUDA error 700");
}

}  // namespace
}  // namespace catchment
