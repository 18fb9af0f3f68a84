#include "kernels/device.h"

#include <cstdlib>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/loader.h"

namespace catchment {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kFake[] = "tests/kernels/fake_cuda_plugin.so";
constexpr char kOld[] = "tests/kernels/old_cuda_plugin.so";
constexpr char kReal[] = "kernels/cuda/libcatchment_cuda.so";

// Tests run in the folder that holds their data.
std::string Local(const std::string& path) { return "./" + path; }

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(ResolveDevice, FlagGoesBeforeTheJob) {
  EXPECT_EQ(*ResolveDevice("", v1::CUDA), v1::CUDA);
  EXPECT_EQ(*ResolveDevice("cpu", v1::CUDA), v1::CPU);
  EXPECT_EQ(*ResolveDevice("auto", v1::CPU), v1::AUTO);
  EXPECT_EQ(*ResolveDevice("cuda", v1::CPU), v1::CUDA);
  EXPECT_EQ(Message(ResolveDevice("gpu", v1::CPU).status()), "--device=gpu is none of auto, cpu, cuda");
}

TEST(ProbeCuda, MissingPluginIsNamed) {
  const absl::Status status = ProbeCuda("/nowhere/libcatchment_cuda.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Message(status),
            "there is no CUDA plugin at /nowhere/libcatchment_cuda.so; put libcatchment_cuda.so "
            "beside the executable or its path into $CATCHMENT_CUDA_PLUGIN");
}

TEST(ProbeCuda, FileThatIsNoLibraryIsNamed) {
  const std::string path = testing::TempDir() + "/broken.so";
  std::ofstream(path) << "not a library";
  const absl::Status status = ProbeCuda(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), StartsWith("the CUDA plugin " + path + " cannot be opened ("));
}

TEST(ProbeCuda, PluginOfAnotherVersionIsRefused) {
  EXPECT_THAT(Message(ProbeCuda(Local(kOld)).status()),
              HasSubstr("has interface version 0 and this program 1"));
}

TEST(ProbeCuda, OwnPluginListsDevicesOrSaysWhatIsMissing) {
  const auto devices = ProbeCuda(Local(kReal));
  if (devices.ok()) {
    EXPECT_THAT(Describe(devices->front()), HasSubstr("GiB, compute capability "));
    return;
  }
  EXPECT_THAT(Message(devices.status()), AnyOf(HasSubstr("built without the CUDA Toolkit"),
                                               HasSubstr("no NVIDIA driver, or one too old"),
                                               HasSubstr("shows no device"), HasSubstr("cuBLAS is missing")));
}

TEST(CudaPluginPath, IsTheVariablesOrBesideTheExecutable) {
  setenv("CATCHMENT_CUDA_PLUGIN", "/some/where.so", 1);
  EXPECT_EQ(CudaPluginPath(), "/some/where.so");
  unsetenv("CATCHMENT_CUDA_PLUGIN");
  EXPECT_THAT(CudaPluginPath(), HasSubstr("tests/kernels/libcatchment_cuda.so"));
}

TEST(ChooseDevice, CpuDoesNotLookForCuda) {
  const auto choice = ChooseDevice(v1::CPU, {.threads = 2}, "/nowhere");
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->explanation, choice->backend->Describe());
  EXPECT_THAT(choice->explanation, HasSubstr("2 threads"));
  EXPECT_THAT(choice->explanation, Not(HasSubstr("CUDA")));
}

TEST(ChooseDevice, AutoGoesOnWithTheCpuAndSaysWhy) {
  const auto choice = ChooseDevice(v1::AUTO, {}, "/nowhere");
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_THAT(choice->explanation, StartsWith("cpu: oneDNN "));
  EXPECT_THAT(choice->explanation, HasSubstr("(no CUDA device: there is no CUDA plugin at /nowhere;"));
}

TEST(ChooseDevice, CudaEndsWithWhatIsMissing) {
  EXPECT_THAT(Message(ChooseDevice(v1::CUDA, {}, "/nowhere").status()),
              StartsWith("device: CUDA: there is no CUDA plugin at /nowhere;"));
}

TEST(ChooseDevice, CudaWithADeviceSaysThatThisBuildHasNoKernels) {
  const absl::Status status = ChooseDevice(v1::CUDA, {}, Local(kFake)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(status),
            "device: CUDA: there is Test Device, 24 GiB, compute capability 8.9, but this build has "
            "no CUDA training kernels; use CPU or AUTO");
  EXPECT_TRUE(ChooseDevice(v1::AUTO, {}, Local(kFake)).ok());
}

}  // namespace
}  // namespace catchment
