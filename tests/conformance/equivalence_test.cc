// Synchronous workers are one worker with the batches of all; a lone worker is its sequential optimizer; and
// all is the same bit for bit however the parameters are split, and from run to run.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "server/optimizers/optimizer.h"
#include "tests/conformance/in_process_parameters.h"
#include "tests/conformance/jobs.h"
#include "tests/conformance/layers.h"
#include "tests/conformance/least_squares.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 150;
constexpr int kRounds = 60;

const LeastSquares& Problem() {
  static const auto* const problem = new LeastSquares(kValues, 640, 1);
  return *problem;
}

std::vector<float> Initial() {
  Random random(7);
  std::vector<float> initial(kValues);
  for (float& value : initial) value = static_cast<float>(random.Normal());
  return initial;
}

// Every round's batch is dealt out in worker order: worker i gets batches[i] rows of it.
std::vector<float> TrainSynchronously(const v1::Job& job, const std::vector<int>& batches,
                                      const VirtualCluster::Split& split = {},
                                      VirtualCluster::Pick pick = VirtualCluster::NextInCircle) {
  VirtualCluster cluster(job, Initial(), static_cast<int>(batches.size()), split, std::move(pick));
  int global = 0;
  for (int batch : batches) global += batch;
  std::vector<VirtualCluster::Work> works;
  int offset = 0;
  for (int batch : batches) {
    works.push_back([&job, batch, global, offset](Parameters* parameters) {
      const auto algorithm = MakeAlgorithm(job, kValues, parameters);
      ASSERT_TRUE(algorithm->Start(0).ok());
      for (int round = 0; round < kRounds; ++round) {
        const int64_t begin = int64_t{round} * global + offset;
        const auto gradient = InLayers([&](absl::Span<const float> w, absl::Span<float> g) {
          Problem().Gradient(begin, begin + batch, w, g);
        });
        ASSERT_TRUE(algorithm->Run({static_cast<uint32_t>(batch), 0}, gradient).ok());
      }
      ASSERT_TRUE(algorithm->Finish().ok());
      EXPECT_EQ(algorithm->counts().late, 0u);
    });
    offset += batch;
  }
  cluster.Run(works);
  return cluster.Weights();
}

// Without servers, gates or workers.
std::vector<float> TrainSequentially(const v1::Job& job, int batch) {
  const auto optimizer = MakeOptimizer(job.optimizer());
  std::vector<float> weights = Initial(), gradient(kValues);
  std::vector<std::vector<float>> states(2, std::vector<float>(kValues, 0.0f));
  for (int round = 0; round < kRounds; ++round) {
    Problem().Gradient(int64_t{round} * batch, int64_t{round + 1} * batch, weights, absl::MakeSpan(gradient));
    optimizer->Apply(
        {job.optimizer().learning_rate(), static_cast<uint64_t>(round + 1)},
        {kValues, gradient.data(), weights.data(), {states[0].data(), states[1].data()}, nullptr});
  }
  return weights;
}

const char* const kOptimizers[] = {
    "optimizer { kind: SGD learning_rate: 0.005 momentum: 0 }",
    "optimizer { kind: SGD learning_rate: 0.0005 momentum: 0.9 }",
    "optimizer { kind: SGD learning_rate: 0.0005 momentum: 0.9 nesterov: true }",
    "optimizer { kind: ADAGRAD learning_rate: 0.1 }",
    "optimizer { kind: ADAM learning_rate: 0.02 }",
};

const char* const kOptimizerNames[] = {"Sgd", "Momentum", "Nesterov", "Adagrad", "Adam"};

class OptimizerEquivalenceTest : public testing::TestWithParam<const char*> {};

TEST_P(OptimizerEquivalenceTest, SynchronousWorkersAreOneWorkerWithAllTheirSamples) {
  const std::vector<float> one = TrainSynchronously(PresetJob("sync", 1, GetParam()), {16});
  EXPECT_LT(Problem().Loss(one), 0.8 * Problem().Loss(Initial())) << "the test would show nothing";
  for (const std::vector<int>& batches :
       {std::vector<int>{8, 8}, {4, 4, 4, 4}, {1, 2, 3, 10}, {0, 16, 0}, {5, 0, 11}}) {
    const std::vector<float> many =
        TrainSynchronously(PresetJob("sync", static_cast<int>(batches.size()), GetParam()), batches);
    for (int64_t i = 0; i < kValues; ++i) {
      ASSERT_NEAR(many[i], one[i], 2e-5) << batches.size() << " workers, value " << i;
    }
  }
}

TEST_P(OptimizerEquivalenceTest, SynchronousRunsAreTheSameBitForBitWhoeverComesFirst) {
  const v1::Job job = PresetJob("sync", 4, GetParam());
  const std::vector<float> first = TrainSynchronously(job, {4, 4, 4, 4});
  EXPECT_EQ(TrainSynchronously(job, {4, 4, 4, 4}), first);
  for (uint64_t seed : {1, 2, 3}) {
    Random random(seed);
    const auto any = [&random](const std::vector<int>& ready, int) {
      return ready[random.Below(ready.size())];
    };
    EXPECT_EQ(TrainSynchronously(job, {4, 4, 4, 4}, {}, any), first) << seed;
  }
}

TEST_P(OptimizerEquivalenceTest, LoneWorkerIsTheSequentialOptimizerBitForBit) {
  const std::vector<float> sequential = TrainSequentially(PresetJob("sync", 1, GetParam()), 16);
  for (const char* preset : {"sync", "downpour"}) {
    EXPECT_EQ(TrainSynchronously(PresetJob(preset, 1, GetParam()), {16}), sequential) << preset;
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerEquivalenceTest, testing::ValuesIn(kOptimizers),
                         [](const auto& info) { return kOptimizerNames[info.index]; });

// ---------------------------------------------------------------------------------------- sharding
// invariance

struct Algorithms {
  const char* name;
  const char* preset;
  const char* more;
};

class ShardingTest : public testing::TestWithParam<Algorithms> {};

TEST_P(ShardingTest, SameOrderOfPushesGivesTheSameBitsHoweverTheParametersAreSplit) {
  const v1::Job job = PresetJob(GetParam().preset, 3, GetParam().more);
  // An order that is no circle, the same for every split.
  const auto train = [&](const VirtualCluster::Split& split) {
    Random random(11);
    const auto any = [&random](const std::vector<int>& ready, int) {
      return ready[random.Below(ready.size())];
    };
    return TrainSynchronously(job, {3, 5, 8}, split, any);
  };
  const std::vector<float> one = train({1, 1 << 18});
  EXPECT_LT(Problem().Loss(one), 0.9 * Problem().Loss(Initial())) << "the test would show nothing";
  for (const VirtualCluster::Split& split :
       {VirtualCluster::Split{1, 16}, {1, 1}, {1, 50}, {2, 1 << 18}, {3, 16}, {3, 7}, {5, 1 << 18}, {9, 5}}) {
    EXPECT_EQ(train(split), one) << split.num_shards << " servers, blocks of " << split.block_size;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, ShardingTest,
    testing::Values(
        Algorithms{"Sync", "sync", "optimizer { learning_rate: 0.0005 }"},
        Algorithms{"SyncAdam", "sync", "optimizer { kind: ADAM learning_rate: 0.02 }"},
        Algorithms{"Downpour", "downpour", "optimizer { learning_rate: 0.0005 }"},
        Algorithms{"DownpourWithPeriods", "downpour",
                   "optimizer { learning_rate: 0.0002 } algorithm { contribution { gradient { push_period: 2 "
                   "fetch_period: 3 local_learning_rate: 0.001 } } }"},
        Algorithms{"DownpourAdagrad", "downpour", "optimizer { kind: ADAGRAD learning_rate: 0.05 }"},
        Algorithms{"Easgd", "easgd", "optimizer { learning_rate: 0.005 }"},
        Algorithms{"EasgdSync", "easgd_sync", "optimizer { learning_rate: 0.005 }"},
        Algorithms{"Eamsgd", "eamsgd", "optimizer { learning_rate: 0.0005 }"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace catchment
