#include "kernels/device.h"

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/loader.h"

namespace catchment {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kOnHost[] = "tests/kernels/cuda/cuda_plugin_on_host.so";
constexpr char kOld[] = "tests/kernels/cuda/old_cuda_plugin.so";
constexpr char kReal[] = "kernels/cuda/libcatchment_cuda.so";

// Tests run in the folder that holds their data.
std::string Local(const std::string& path) { return "./" + path; }

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(ResolveDevice, FlagGoesBeforeTheJob) {
  EXPECT_EQ(ResolveDevice("", v1::CUDA)->device, v1::CUDA);
  EXPECT_EQ(ResolveDevice("cpu", v1::CUDA)->device, v1::CPU);
  EXPECT_EQ(ResolveDevice("auto", v1::CPU)->device, v1::AUTO);
  EXPECT_EQ(ResolveDevice("cuda", v1::CPU)->device, v1::CUDA);
  EXPECT_EQ(ResolveDevice("cuda", v1::CPU)->cuda_index, std::nullopt);
  EXPECT_EQ(ResolveDevice("cuda:3", v1::CPU)->device, v1::CUDA);
  EXPECT_EQ(ResolveDevice("cuda:3", v1::CPU)->cuda_index, 3);
}

TEST(ResolveDevice, OtherWordsAreNamed) {
  for (const std::string word : {"gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:0"}) {
    EXPECT_EQ(Message(ResolveDevice(word, v1::CPU).status()),
              "--device=" + word + " is none of auto, cpu, cuda, cuda:0, cuda:1, ...");
  }
}

TEST(OpenCudaPlugin, MissingPluginIsNamed) {
  const absl::Status status = OpenCudaPlugin("/nowhere/libcatchment_cuda.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Message(status),
            "there is no CUDA plugin at /nowhere/libcatchment_cuda.so; put libcatchment_cuda.so "
            "beside the executable or its path into $CATCHMENT_CUDA_PLUGIN");
}

TEST(OpenCudaPlugin, FileThatIsNoLibraryIsNamed) {
  const std::string path = testing::TempDir() + "/broken.so";
  std::ofstream(path) << "not a library";
  const absl::Status status = OpenCudaPlugin(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), StartsWith("the CUDA plugin " + path + " cannot be opened ("));
}

TEST(OpenCudaPlugin, PluginOfAnotherVersionIsRefused) {
  EXPECT_THAT(Message(OpenCudaPlugin(Local(kOld)).status()),
              HasSubstr("has interface version 0 and this program 2"));
}

TEST(ListCudaDevices, OwnPluginListsDevicesOrSaysWhatIsMissing) {
  const auto plugin = OpenCudaPlugin(Local(kReal));
  if (!plugin.ok()) {
    EXPECT_THAT(Message(plugin.status()), HasSubstr("cuBLAS is missing"));
    return;
  }
  const auto devices = ListCudaDevices(**plugin);
  if (devices.ok()) {
    EXPECT_THAT(Describe(devices->front()), HasSubstr("GiB, compute capability "));
    return;
  }
  EXPECT_THAT(Message(devices.status()),
              AnyOf(HasSubstr("built without the CUDA Toolkit"),
                    HasSubstr("no NVIDIA driver, or one too old"), HasSubstr("shows no device")));
}

TEST(CudaPluginPath, IsTheVariablesOrBesideTheExecutable) {
  setenv("CATCHMENT_CUDA_PLUGIN", "/some/where.so", 1);
  EXPECT_EQ(CudaPluginPath(), "/some/where.so");
  unsetenv("CATCHMENT_CUDA_PLUGIN");
  EXPECT_THAT(CudaPluginPath(), HasSubstr("tests/kernels/libcatchment_cuda.so"));
}

DeviceOptions With(const std::string& plugin) { return {.cuda_plugin = plugin}; }

TEST(ChooseDevice, CpuDoesNotLookForCuda) {
  const auto choice = ChooseDevice({v1::CPU}, {.cpu = {.threads = 2}, .cuda_plugin = "/nowhere"});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->explanation, choice->backend->Describe());
  EXPECT_THAT(choice->explanation, HasSubstr("2 threads"));
  EXPECT_THAT(choice->explanation, Not(HasSubstr("CUDA")));
}

TEST(ChooseDevice, AutoGoesOnWithTheCpuAndSaysWhy) {
  const auto choice = ChooseDevice({v1::AUTO}, With("/nowhere"));
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_THAT(choice->explanation, StartsWith("cpu: oneDNN "));
  EXPECT_THAT(choice->explanation, HasSubstr("(no CUDA device: there is no CUDA plugin at /nowhere;"));
}

TEST(ChooseDevice, CudaEndsWithWhatIsMissing) {
  EXPECT_THAT(Message(ChooseDevice({v1::CUDA}, With("/nowhere")).status()),
              StartsWith("device: CUDA: there is no CUDA plugin at /nowhere;"));
}

TEST(ChooseDevice, WorkersTakeDevicesInTurn) {
  for (const auto& [local_index, device] : std::vector<std::pair<int, int>>{{0, 0}, {1, 1}, {2, 0}, {5, 1}}) {
    const auto choice = ChooseDevice({v1::AUTO}, {.local_index = local_index, .cuda_plugin = Local(kOnHost)});
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->explanation, absl::StrCat("the layers of cuda:", device, " in plain loops"));
  }
}

TEST(ChooseDevice, TheDeviceThatIsAskedForIsTaken) {
  const auto choice = ChooseDevice({v1::CUDA, 1}, With(Local(kOnHost)));
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->explanation, "the layers of cuda:1 in plain loops");
}

TEST(ChooseDevice, ADeviceThatIsNotThereIsNamed) {
  EXPECT_EQ(
      Message(ChooseDevice({v1::CUDA, 2}, With(Local(kOnHost))).status()),
      "device: CUDA: cuda:2 is not there; this machine has cuda:0 to cuda:1 (cuda:0 is Test Device, 24 GiB, "
      "compute capability 8.9); use CPU or AUTO");
}

}  // namespace
}  // namespace catchment
