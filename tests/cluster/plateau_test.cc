// Schedule PLATEAU, from the evaluator's losses through the master to every server, and over a restart.
#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

// No loss falls by 90 % from one evaluation to the next: but for the first, each one makes the rate fall.
std::string Job(int epochs) {
  return SmallJob("downpour",
                  absl::StrCat("workers: 2 batch_size: 32 epochs: ", epochs,
                               " evaluation { every_epochs: 0.5 } optimizer { schedule { decay: PLATEAU "
                               "factor: 0.5 patience: 0 threshold: 0.9 final_fraction: 0.125 } }"));
}

TEST(PlateauTest, RateFallsToItsLeastAndStaysThereWhenTheJobIsResumed) {
  TestCluster::Options options{Job(/*epochs=*/1000000), /*servers=*/2};
  uint64_t samples = 0;
  {
    TestCluster cluster(options);
    ASSERT_TRUE(cluster.Start(2));
    ASSERT_TRUE(cluster.AwaitStatus(
        "the least rate", [](const v1::JobStatus& status) { return status.plateau_factor() == 0.125; }));
    ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "the learning rate is now multiplied by 0.5"));
    cluster.server(0).Signal(SIGTERM);
    ASSERT_TRUE(cluster.AwaitOrderlyEnd());
    EXPECT_EQ(cluster.Summary()["plateau_factor"], 0.125);
    samples = cluster.Summary()["samples"];
  }
  options.resume = AutoSwitch::kOn;
  TestCluster again(options);
  ASSERT_TRUE(again.StartServers());
  ASSERT_TRUE(again.AwaitStatus("what the first life came to", [](const v1::JobStatus& status) {
    return status.plateau_factor() == 0.125;
  }));
  again.StartWorkers(2);
  ASSERT_TRUE(again.AwaitTrained(samples + 2000));
  again.server(0).Signal(SIGTERM);
  ASSERT_TRUE(again.AwaitOrderlyEnd());
}

}  // namespace
}  // namespace catchment
