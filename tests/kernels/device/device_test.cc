#include "kernels/device/device.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/loader.h"

namespace catchment {
namespace {

using ::testing::AnyOf;
using ::testing::EndsWith;
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

TEST(ResolveDevice, EitherCaseIsAccepted) {
  EXPECT_EQ(ResolveDevice("CPU", v1::CUDA)->device, v1::CPU);
  EXPECT_EQ(ResolveDevice("Cuda:3", v1::CPU)->cuda_index, 3);
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
            "in the executable's directory, or set $CATCHMENT_CUDA_PLUGIN to its path");
}

TEST(DescribeCudaPlugin, SaysWhetherItCanBeOpened) {
  EXPECT_EQ(DescribeCudaPlugin("/nowhere/libcatchment_cuda.so"),
            "no plugin at /nowhere/libcatchment_cuda.so");
  EXPECT_THAT(DescribeCudaPlugin(Local(kOnHost)), StartsWith("plugin " + Local(kOnHost) + ", built with "));
  EXPECT_THAT(DescribeCudaPlugin(Local(kOld)), HasSubstr("interface version"));
}

TEST(OpenCudaPlugin, FileThatIsNotALibraryIsNamed) {
  const std::string path = testing::TempDir() + "/broken.so";
  std::ofstream(path) << "not a library";
  const absl::Status status = OpenCudaPlugin(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), StartsWith("the CUDA plugin " + path + " cannot be opened ("));
}

TEST(OpenCudaPlugin, PluginOfAnotherVersionIsRefused) {
  EXPECT_THAT(
      Message(OpenCudaPlugin(Local(kOld)).status()),
      HasSubstr(absl::StrCat("has interface version 0 and this program ", CATCHMENT_CUDA_PLUGIN_VERSION)));
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
              AnyOf(HasSubstr("built without the CUDA Toolkit"), HasSubstr("there is no NVIDIA driver"),
                    HasSubstr("the NVIDIA driver supports CUDA"), HasSubstr("shows no device")));
}

// As probe.cu has it of a driver that does not know this CUDA.
TEST(ListCudaDevices, ADriverThatIsTooOldIsNamedWithTheToolkit) {
  CatchmentCudaPlugin plugin = {};
  plugin.toolkit = "CUDA 13.0, cuBLAS 13.1";
  plugin.probe = [](CatchmentCudaDevice*, int32_t, char* why, int32_t why_size) {
    std::snprintf(why, why_size, "the NVIDIA driver supports CUDA 12.4 and the plugin needs 13.0");
    return int32_t{0};
  };
  const absl::Status status = ListCudaDevices(plugin).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(status),
            "the NVIDIA driver supports CUDA 12.4 and the plugin needs 13.0; "
            "the plugin was built with CUDA 13.0, cuBLAS 13.1");
}

TEST(MakeCudaBackend, WithoutTheToolkitThereIsNone) {
  const absl::Status status = MakeCudaBackend(CatchmentCudaPlugin(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("built without the CUDA Toolkit"));
}

TEST(CudaPluginPath, IsTheVariablesOrBesideTheExecutable) {
  setenv("CATCHMENT_CUDA_PLUGIN", "/some/where.so", 1);
  EXPECT_EQ(CudaPluginPath(), "/some/where.so");
  unsetenv("CATCHMENT_CUDA_PLUGIN");
  EXPECT_THAT(CudaPluginPath(), HasSubstr("tests/kernels/device/libcatchment_cuda.so"));
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
    EXPECT_EQ(choice->explanation, absl::StrCat("the layers of cuda:", device, " in plain loops, float32"));
  }
}

class OldDeviceTest : public testing::Test {
 protected:
  ~OldDeviceTest() override { unsetenv("CATCHMENT_HOST_DEVICE_CAPABILITIES"); }
  static void SetCapabilities(const char* capabilities) {
    setenv("CATCHMENT_HOST_DEVICE_CAPABILITIES", capabilities, 1);
  }
};

TEST_F(OldDeviceTest, ADeviceThatIsTooOldIsNamed) {
  SetCapabilities("7.5 7.0");
  for (const DeviceRequest& request : {DeviceRequest{v1::CUDA}, DeviceRequest{v1::CUDA, 0}}) {
    const absl::Status status = ChooseDevice(request, With(Local(kOnHost))).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(
        Message(status),
        "device: CUDA: cuda:0 is too old: it is Test Device, 24 GiB, compute capability 7.5, and the CUDA "
        "plugin needs 8.0 or later; use CPU or AUTO");
  }
  EXPECT_THAT(Message(ChooseDevice({v1::CUDA, 1}, With(Local(kOnHost))).status()),
              HasSubstr("cuda:1 is too old"));
}

TEST_F(OldDeviceTest, AutoTakesTheCpuInItsPlace) {
  SetCapabilities("7.5 7.5");
  const auto choice = ChooseDevice({v1::AUTO}, With(Local(kOnHost)));
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_THAT(choice->explanation, StartsWith("cpu: oneDNN "));
  EXPECT_THAT(choice->explanation, HasSubstr("(no CUDA device: cuda:0 is too old: "));
}

TEST_F(OldDeviceTest, WorkersTakeTheOthersInTurn) {
  SetCapabilities("7.5 8.0");
  for (const int local_index : {0, 1, 2}) {
    const auto choice = ChooseDevice({v1::AUTO}, {.local_index = local_index, .cuda_plugin = Local(kOnHost)});
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->explanation, "the layers of cuda:1 in plain loops, float32");
  }
}

TEST(ChooseDevice, TheDeviceThatIsAskedForIsTaken) {
  const auto choice = ChooseDevice({v1::CUDA, 1}, With(Local(kOnHost)));
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->explanation, "the layers of cuda:1 in plain loops, float32");
}

TEST(ChooseDevice, ACudaDeviceComputesInThePrecisionThatIsAskedFor) {
  for (const auto& [precision, name] :
       {std::pair(v1::Computation::FLOAT32, "float32"), std::pair(v1::Computation::TF32, "TF32"),
        std::pair(v1::Computation::BFLOAT16, "bfloat16"), std::pair(v1::Computation::FLOAT16, "float16")}) {
    DeviceOptions options = With(Local(kOnHost));
    options.precision = precision;
    const auto choice = ChooseDevice({v1::CUDA}, options);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->explanation, absl::StrCat("the layers of cuda:0 in plain loops, ", name));
    EXPECT_EQ(choice->backend->wants_loss_scale(), precision == v1::Computation::FLOAT16);
  }
}

TEST(ChooseDevice, ACpuSaysThatItComputesInFloat32) {
  const auto choice = ChooseDevice({v1::CPU}, {.precision = v1::Computation::BFLOAT16});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_THAT(choice->explanation, EndsWith(" (in float32: BFLOAT16 is of CUDA devices)"));
  EXPECT_FALSE(choice->backend->wants_loss_scale());
}

TEST(ChooseDevice, ADeviceThatIsNotThereIsNamed) {
  EXPECT_EQ(Message(ChooseDevice({v1::CUDA, 2}, With(Local(kOnHost))).status()),
            "device: CUDA: cuda:2 does not exist; this machine has cuda:0 to cuda:1 (cuda:0 is Test Device, "
            "24 GiB, compute capability 8.9); use CPU or AUTO");
}

}  // namespace
}  // namespace catchment
