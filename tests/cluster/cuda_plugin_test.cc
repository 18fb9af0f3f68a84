// Workers with the CUDA plugin train what CPU workers train, on machines without a GPU: compiled as
// cuda_on_host_test with its layers in plain loops, and as cuda_on_ptx_test (ON_PTX 1) with the PTX that nvcc
// makes of them.
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;

// With `computation`, where its axis says more than the device.
std::string Job(const std::string& device, const std::string& computation = "") {
  return absl::StrCat(R"(
      name: "devices"
      model {
        layers { conv2d { filters: 4 kernel_size: 5 stride: 3 bias: false } }
        layers { batch_norm {} }
        layers { relu {} }
        layers { dropout { rate: 0.1 } }
        layers { flatten {} }
        layers { dense { units: 10 } }
      }
      data { drawn_digits { train_samples: 600 test_samples: 200 } }
      deterministic: true batch_size: 32 workers: 2 epochs: 1 block_kib: 16
      algorithm { preset: "sync" }
      computation { )",
                      computation, " } device: ", device);
}

constexpr const char* kPlugin =
    ON_PTX ? "tests/kernels/cuda/ptx/cuda_plugin_on_ptx.so" : "tests/kernels/cuda/cuda_plugin_on_host.so";
constexpr const char* kDescription = ON_PTX ? "PTX on the processor" : "cuda:0 in plain loops";

void UsePlugin() {
  setenv("CATCHMENT_CUDA_PLUGIN", Runfile(kPlugin).c_str(), /*overwrite=*/1);
  setenv("CATCHMENT_PTX_ORDER", "random:7", /*overwrite=*/1);
}

TEST(CudaPluginTest, TrainsTheCpusWeights) {
  UsePlugin();
  std::map<std::string, std::vector<float>> weights[2];
  for (const bool cuda : {false, true}) {
    TestCluster cluster({Job(cuda ? "CUDA" : "CPU"), 2, TestDirectory() + (cuda ? "/cuda" : "/cpu")});
    ASSERT_TRUE(cluster.Start(2));
    ASSERT_TRUE(cluster.AwaitOrderlyEnd());
    EXPECT_THAT(cluster.Summary()["device"].get<std::string>(), HasSubstr(cuda ? kDescription : "cpu"));
    weights[cuda] = cluster.Tensors();
  }
  EXPECT_EQ(weights[0].size(), 7u) << "with the mean and the variance of batch_norm";
  EXPECT_LT(LargestDifference(weights[0], weights[1]), 1e-3);
}

// The initial scale overflows: minibatches are repeated, no value that is not finite is sent, and no worker
// waits forever.
TEST(CudaPluginTest, TrainsNearlyTheCpusWeightsInFloat16) {
  UsePlugin();
  std::map<std::string, std::vector<float>> weights[2];
  for (const bool cuda : {false, true}) {
    TestCluster cluster(
        {cuda ? Job("CUDA", "precision: FLOAT16 loss_scale: 1073741824 loss_scale_period: 5") : Job("CPU"), 2,
         TestDirectory() + (cuda ? "/float16" : "/float32")});
    ASSERT_TRUE(cluster.Start(2));
    ASSERT_TRUE(cluster.AwaitOrderlyEnd());
    EXPECT_THAT(cluster.Summary()["device"].get<std::string>(), HasSubstr(cuda ? "float16" : "cpu"));
    weights[cuda] = cluster.Tensors();
  }
  const double difference = LargestDifference(weights[0], weights[1]);
  EXPECT_LT(difference, 0.02);
  EXPECT_GT(difference, 1e-6) << "float16 rounds";
}

}  // namespace
}  // namespace catchment
