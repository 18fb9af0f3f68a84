// A model that is too big for the device says what it needs. The device is the processor, with little memory.
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/loader.h"
#include "worker/model/network.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;

constexpr char kOnHost[] = "./tests/kernels/cuda/cuda_plugin_on_host.so";
constexpr int kMebibyte = 1 << 20;
const auto kSpare = static_cast<int>(cuda::Device::kSpareBytes);

absl::Status Make(int batch_size, int memory_bytes) {
  setenv("CATCHMENT_HOST_DEVICE_BYTES", absl::StrCat(memory_bytes).c_str(), 1);
  v1::Model model;
  EXPECT_TRUE(
      google::protobuf::TextFormat::ParseFromString("layers { flatten {} } layers { dense { units: 1024 } } "
                                                    "layers { tanh {} } layers { dense { units: 10 } }",
                                                    &model));
  return Network::Create(model, {1, 28, 28}, 10, {.max_batch_size = batch_size},
                         *MakeCudaBackend(**OpenCudaPlugin(kOnHost), {}))
      .status();
}

// By hand, in values: each layer has its output and the output's gradient, each layer with parameters those
// and their gradient. The image, whose one channel is as the host has it, is also a vector, a layer's input
// of its own. The loss has room for labels and for real targets.
int BytesNeeded(int batch_size) {
  const int activations = 2 * (784 + 784 + 1024 + 1024 + 10), scores = 2, labels = 1, targets = 10;
  const int parameters = 784 * 1024 + 1024 + 1024 * 10 + 10;
  return 4 * (batch_size * (activations + scores + labels + targets) + 2 * parameters);
}

TEST(MemoryTest, AllThatIsNeededIsEnough) {
  const int needed = BytesNeeded(64) + kSpare;
  EXPECT_TRUE(Make(64, needed).ok()) << Make(64, needed);
  EXPECT_FALSE(Make(64, needed - 1).ok());
}

TEST(MemoryTest, SaysWhatIsNeededAndWhatThereIs) {
  const absl::Status status = Make(256, 8 * kMebibyte);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr(absl::StrCat(
          "the device has too little memory: with minibatches of 256 samples the model needs ",
          absl::StrFormat("%.1f", 1.0 * BytesNeeded(256) / kMebibyte),
          " MiB, besides 0.1 MiB for the code of kernels, and of the device's 8.0 MiB there are 8.0 MiB "
          "for both; use a smaller batch_size or model, or run fewer programs on the device")));
  EXPECT_TRUE(Make(32, 8 * kMebibyte).ok()) << "as it says: " << Make(32, 8 * kMebibyte);
}

// A network of another batch size that did not fit takes what it lacked with it.
TEST(MemoryTest, WhatIsFreedIsMissedNoMore) {
  setenv("CATCHMENT_HOST_DEVICE_BYTES", absl::StrCat(1000 + kSpare).c_str(), 1);
  cuda::Device device(0, cuda::Precision::kFloat32);
  {
    const cuda::DeviceArray<char> fits(&device, 600), does_not(&device, 600 + kSpare);
    EXPECT_EQ(does_not.data(), nullptr);
    EXPECT_THROW(device.CheckMemory(1), cuda::Error);
  }
  device.CheckMemory(1);
  const cuda::DeviceArray<char> all(&device, 1000);
  EXPECT_NE(all.data(), nullptr);
  device.CheckMemory(1);
}

TEST(MemoryTest, VectorsThatShareAPageArePinnedOneByOne) {
  constexpr size_t kPage = 4096, kVector = kPage + kPage / 2;
  alignas(kPage) static char memory[3 * kPage];
  cuda::Device device(0, cuda::Precision::kFloat32);
  EXPECT_FALSE(device.IsPinned(memory, 1));
  ASSERT_TRUE(device.Pin(memory, kVector));
  EXPECT_TRUE(device.IsPinned(memory, kVector));
  EXPECT_FALSE(device.IsPinned(memory + kVector, kVector));
  ASSERT_TRUE(device.Pin(memory + kVector, kVector));
  EXPECT_TRUE(device.IsPinned(memory, 2 * kVector));
  device.Unpin(memory);
  EXPECT_TRUE(device.IsPinned(memory + kVector, kVector)) << "the second vector's, with the page of both";
  device.Unpin(memory + kVector);
  EXPECT_FALSE(device.IsPinned(memory + kVector, 1));
  EXPECT_FALSE(device.IsPinned(memory + kVector - 1, 1));
}

}  // namespace
}  // namespace catchment
