// A short synchronous run on the real MNIST.
#include <cstdlib>

#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

constexpr char kJob[] = R"(
    name: "mnist"
    model {
      layers { flatten {} }
      layers { dense { units: 64 } }
      layers { relu {} }
      layers { dense { units: 10 } }
    }
    data { mnist {} }
    device: CPU
    algorithm { preset: "sync" }
    workers: 2
    batch_size: 32
    epochs: 2
)";

TEST(MnistTest, SmallDenseNetworkLearnsIt) {
  if (std::getenv("CATCHMENT_DATA") == nullptr) {
    GTEST_SKIP() << "CATCHMENT_DATA is not set: MNIST is not there";
  }
  TestCluster cluster({kJob, /*servers=*/2});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["samples"], 120000);
  EXPECT_GE(summary.value("test_accuracy", 0.0), 0.95) << summary.dump(2);
}

}  // namespace
}  // namespace catchment
