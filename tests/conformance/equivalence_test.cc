// Synchronous workers are one worker with the batches of all; a lone worker is its sequential optimizer; and
// all is the same bit for bit however the parameters are split, and from run to run.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/algorithm_facts.h"
#include "optim/optimizer.h"
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

// Every round's batch is divided in worker order: worker i gets batches[i] of its rows.
std::vector<float> TrainSynchronously(const v1::Job& job, const std::vector<int>& batches,
                                      const VirtualCluster::Split& split = {},
                                      VirtualCluster::Pick pick = VirtualCluster::NextInCircle,
                                      int rounds = kRounds) {
  VirtualCluster cluster(job, Initial(), static_cast<int>(batches.size()), split, std::move(pick));
  int global = 0;
  for (int batch : batches) global += batch;
  std::vector<VirtualCluster::Work> works;
  int offset = 0;
  for (int batch : batches) {
    works.push_back([&job, batch, global, offset, rounds](Parameters* parameters) {
      const auto algorithm = MakeAlgorithm(job, kValues, parameters);
      ASSERT_TRUE(algorithm->Start(0).ok());
      for (int round = 0; round < rounds; ++round) {
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

// Gradient accumulation: `period` minibatches of b samples are one of period * b.
TEST_P(OptimizerEquivalenceTest, MeanOverAPushPeriodIsOneLargeMinibatch) {
  for (const auto& [period, batches] : {std::pair(4, std::vector<int>{4}), {2, {4, 4}}, {3, {1, 2, 3}}}) {
    int global = 0;
    for (int batch : batches) global += batch;
    const std::vector<float> large = TrainSynchronously(PresetJob("sync", 1, GetParam()), {period * global},
                                                        {}, VirtualCluster::NextInCircle, kRounds / period);
    const std::string accumulated = absl::StrCat(
        GetParam(), " algorithm { contribution { gradient { push_period: ", period, " mean: true } } }");
    const std::vector<float> small =
        TrainSynchronously(PresetJob("sync", static_cast<int>(batches.size()), accumulated), batches);
    EXPECT_NE(large, Initial());
    for (int64_t i = 0; i < kValues; ++i) {
      ASSERT_NEAR(small[i], large[i], 2e-5) << "period " << period << ", value " << i;
    }
  }
}

TEST_P(OptimizerEquivalenceTest, DeterministicRunsAreTheSameBitForBitWhoeverComesFirst) {
  std::optional<std::vector<float>> first;
  // With whole steps contributions are added up before all are in.
  for (const int train_samples : {160, 165}) {
    const v1::Job job =
        PresetJob("sync", 4,
                  absl::StrCat(GetParam(), " deterministic: true batch_size: 4 data { drawn_digits { ",
                               "train_samples: ", train_samples, " } }"));
    EXPECT_EQ(AddsUpContributions(job), train_samples == 160);
    if (!first) first = TrainSynchronously(job, {4, 4, 4, 4});
    EXPECT_EQ(TrainSynchronously(job, {4, 4, 4, 4}), first);
    for (uint64_t seed : {1, 2, 3}) {
      Random random(seed);
      const auto any = [&random](const std::vector<int>& ready, int) {
        return ready[random.Below(ready.size())];
      };
      EXPECT_EQ(TrainSynchronously(job, {4, 4, 4, 4}, {}, any), first) << seed;
    }
  }
}

TEST_P(OptimizerEquivalenceTest, LoneWorkerIsTheSequentialOptimizerBitForBit) {
  const std::vector<float> sequential = TrainSequentially(PresetJob("sync", 1, GetParam()), 16);
  for (const char* preset : {"sync", "downpour"}) {
    EXPECT_EQ(TrainSynchronously(PresetJob(preset, 1, GetParam()), {16}), sequential) << preset;
  }
}

// Property 5: where nothing is stale there is nothing to compensate.
TEST(Compensation, LeavesALoneWorkersBitsAsTheyAre) {
  const std::string optimizer = "optimizer { learning_rate: 0.0005 momentum: 0.8 nesterov: true }";
  const std::vector<float> plain = TrainSequentially(PresetJob("downpour", 1, optimizer), 4);
  for (const std::string kind :
       {"inverse {}", "power { exponent: 0.5 }", "exponential {}", "delay_compensated { lambda: 1 }",
        "delay_compensated { adaptive: true }", "gap_aware {}", "open_loop_momentum {}",
        "delay_adaptive { threshold: 1 }", "gap_aware {} delay_adaptive { threshold: 1 } of: GRADIENT",
        "power {} of: GRADIENT", "step_bound: 1"}) {
    const v1::Job job = PresetJob("downpour", 1, optimizer + " algorithm { compensation { " + kind + " } }");
    EXPECT_EQ(TrainSynchronously(job, {4}), plain) << kind;
  }
}

TEST(Compensation, LimitsBeyondAnyStalenessChangeNothing) {
  // Four workers in turn: 3 updates are between a pull and its push.
  const auto train = [](const std::string& consistency, const std::string& compensation) {
    return TrainSynchronously(
        PresetJob("downpour", 4,
                  absl::StrCat("optimizer { learning_rate: 0.0005 momentum: 0.5 } algorithm { ", consistency,
                               " compensation { ", compensation, " } }")),
        {4, 4, 4, 4});
  };
  const std::vector<float> plain = train("", "none {}");
  EXPECT_EQ(train("", "delay_adaptive { threshold: 3 }"), plain);
  EXPECT_NE(train("", "delay_adaptive { threshold: 2 }"), plain);
  EXPECT_EQ(train("", "step_bound: 4"), plain);
  EXPECT_NE(train("", "step_bound: 3"), plain);
  EXPECT_EQ(train("consistency { asynchronous { staleness_limit: 4 } }", "none {}"), plain);
}

TEST(Quorum, OfAllWorkersIsDiLoCoBitForBit) {
  const std::string local =
      "contribution { pseudo_gradient { local_steps: 4 local_optimizer { learning_rate: 0.01 } } }";
  const std::vector<float> plain =
      TrainSynchronously(PresetJob("diloco", 4, absl::StrCat("algorithm { ", local, " }")), {4, 4, 4, 4});
  EXPECT_LT(Problem().Loss(plain), 0.8 * Problem().Loss(Initial())) << "the test would show nothing";
  const v1::Job job =
      PresetJob("diloco", 4, absl::StrCat("algorithm { consistency { quorum { minimum: 4 } } ", local, " }"));
  EXPECT_EQ(TrainSynchronously(job, {4, 4, 4, 4}), plain);
  EXPECT_EQ(TrainSynchronously(job, {4, 4, 4, 4}, {.num_shards = 3, .block_size = 16}), plain);
  for (uint64_t seed : {1, 2, 3}) {
    Random random(seed);
    const auto any = [&random](const std::vector<int>& ready, int) {
      return ready[random.Below(ready.size())];
    };
    // Contributions are added up in the order of their arrival.
    const std::vector<float> other = TrainSynchronously(job, {4, 4, 4, 4}, {}, any);
    for (int64_t i = 0; i < kValues; ++i) ASSERT_NEAR(other[i], plain[i], 1e-5) << seed << ", value " << i;
  }
}

TEST(Quorum, LoneWorkerIsDiLoCoBitForBit) {
  const auto train = [](const std::string& consistency) {
    return TrainSynchronously(
        PresetJob("diloco", 1,
                  absl::StrCat("algorithm { consistency { ", consistency,
                               " } contribution { pseudo_gradient { local_steps: 4 } } }")),
        {16});
  };
  EXPECT_EQ(train("quorum {}"), train("synchronous {}"));
}

// The field of the job as the local optimizer's.
std::string AsLocal(const std::string& optimizer) {
  return "algorithm { contribution { pseudo_gradient { local_steps: 4 local_" + optimizer + " } } }";
}

// The servers subtract what the worker has, x_pulled - (x_pulled - x), and so round twice a round.
TEST_P(OptimizerEquivalenceTest, LoneWorkerOfLocalSgdIsItsOwnOptimizer) {
  const v1::Job local = PresetJob("local_sgd", 1, AsLocal(GetParam()));
  const std::vector<float> sequential = TrainSequentially(PresetJob("sync", 1, GetParam()), 16);
  const std::vector<float> trained = TrainSynchronously(local, {16});
  for (int64_t i = 0; i < kValues; ++i) ASSERT_NEAR(trained[i], sequential[i], 2e-5) << "value " << i;
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerEquivalenceTest, testing::ValuesIn(kOptimizers),
                         [](const auto& info) { return kOptimizerNames[info.index]; });

// ---------------------------------------------------------------------------------- look-ahead momentum

constexpr char kNesterov[] = "optimizer { kind: SGD learning_rate: 0.0005 momentum: 0.9 nesterov: true }";
constexpr char kLookAhead[] = "optimizer { learning_rate: 0.0005 }";

TEST(LookAheadEquivalenceTest, LoneWorkerIsNesterovsSgdBitForBit) {
  EXPECT_EQ(TrainSynchronously(PresetJob("dana", 1, kLookAhead), {16}),
            TrainSequentially(PresetJob("sync", 1, kNesterov), 16));
}

TEST(LookAheadEquivalenceTest, SynchronousWorkersAreNesterovsSgdWithAllTheirSamples) {
  const std::string synchronous = absl::StrCat(kLookAhead, " algorithm { consistency { synchronous {} } }");
  const std::vector<float> one = TrainSequentially(PresetJob("sync", 1, kNesterov), 16);
  const std::vector<float> many = TrainSynchronously(PresetJob("dana", 4, synchronous), {4, 4, 4, 4});
  for (int64_t i = 0; i < kValues; ++i) ASSERT_NEAR(many[i], one[i], 2e-5) << "value " << i;
}

// -------------------------------------------------------------------------------------------- clip_norm

// torch.nn.utils.clip_grad_norm_ and then the optimizer, in double precision up to the optimizer.
std::vector<float> TrainSequentiallyClipped(const v1::Job& job, int batch) {
  const auto optimizer = MakeOptimizer(job.optimizer());
  std::vector<float> weights = Initial(), gradient(kValues), state(kValues, 0.0f);
  int clipped = 0;
  for (int round = 0; round < kRounds; ++round) {
    Problem().Gradient(int64_t{round} * batch, int64_t{round + 1} * batch, weights, absl::MakeSpan(gradient));
    double squares = 0;
    for (const float g : gradient) squares += double{g} * g;
    const double scale = std::min(1.0, job.optimizer().clip_norm() / (std::sqrt(squares) + 1e-6));
    clipped += scale < 1;
    for (float& g : gradient) g = static_cast<float>(g * scale);
    optimizer->Apply({job.optimizer().learning_rate(), static_cast<uint64_t>(round + 1)},
                     {kValues, gradient.data(), weights.data(), {state.data()}, nullptr});
  }
  EXPECT_GT(clipped, 3) << "the test would show nothing";
  EXPECT_LT(clipped, kRounds - 3);
  return weights;
}

TEST(ClipNormEquivalenceTest, LoneWorkerClipsAsPyTorchDoes) {
  const v1::Job job = PresetJob("sync", 1,
                                "optimizer { kind: SGD learning_rate: 0.002 momentum: 0.9 "
                                "nesterov: true clip_norm: 20 }");
  const std::vector<float> sequential = TrainSequentiallyClipped(job, 16);
  const std::string local =
      "kind: SGD learning_rate: 0.002 momentum: 0.9 nesterov: true clip_norm: "
      "20 schedule { decay: CONSTANT }";
  for (const v1::Job& same : {job, PresetJob("dana", 1, "optimizer { learning_rate: 0.002 clip_norm: 20 }"),
                              PresetJob("local_sgd", 1, AsLocal("optimizer { " + local + " }"))}) {
    const std::vector<float> trained = TrainSynchronously(same, {16});
    for (int64_t i = 0; i < kValues; ++i) {
      ASSERT_NEAR(trained[i], sequential[i], 2e-5) << same.algorithm().preset() << ", value " << i;
    }
  }
}

// --------------------------------------------------------------------------------------- sharding invariance

struct Algorithms {
  const char* name;
  const char* preset;
  const char* more;
};

class ShardingTest : public testing::TestWithParam<Algorithms> {};

TEST_P(ShardingTest, SameOrderOfPushesGivesTheSameBitsHoweverTheParametersAreSplit) {
  const v1::Job job = PresetJob(GetParam().preset, 3, GetParam().more);
  // An order that is not cyclic, the same for every split.
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
        Algorithms{"Hybrid", "hybrid", "optimizer { learning_rate: 0.0005 }"},
        Algorithms{"Softsync", "softsync", "optimizer { learning_rate: 0.0005 }"},
        Algorithms{"Ssp", "ssp",
                   "optimizer { learning_rate: 0.0005 } "
                   "algorithm { consistency { bounded_staleness { bound: 1 } } }"},
        Algorithms{"Delay", "downpour",
                   "optimizer { learning_rate: 0.0005 } "
                   "algorithm { consistency { asynchronous { emulated_delay: 4 } } }"},
        Algorithms{"SspEasgd", "easgd",
                   "optimizer { learning_rate: 0.005 } "
                   "algorithm { consistency { bounded_staleness { bound: 0 } } }"},
        Algorithms{"HybridEasgd", "easgd_sync",
                   "optimizer { learning_rate: 0.005 } algorithm { consistency { grouped { groups: 2 } } }"},
        Algorithms{"DownpourAdagrad", "downpour", "optimizer { kind: ADAGRAD learning_rate: 0.05 }"},
        Algorithms{"Easgd", "easgd", "optimizer { learning_rate: 0.005 }"},
        Algorithms{"EasgdSync", "easgd_sync", "optimizer { learning_rate: 0.005 }"},
        Algorithms{"Eamsgd", "eamsgd", "optimizer { learning_rate: 0.0005 }"},
        Algorithms{"Dana", "dana", "optimizer { learning_rate: 0.0003 }"},
        Algorithms{"Gem", "gem", "algorithm { contribution { energy_matching { learning_rate: 0.0005 } } }"},
        Algorithms{"LocalSgd", "local_sgd",
                   "algorithm { contribution { pseudo_gradient { local_steps: 4 "
                   "local_optimizer { learning_rate: 0.0005 } } } }"},
        Algorithms{"DiLoCo", "diloco",
                   "algorithm { contribution { pseudo_gradient { local_steps: 4 "
                   "local_optimizer { learning_rate: 0.01 } } } }"},
        Algorithms{"AsynchronousDiLoCo", "diloco_async",
                   "algorithm { contribution { pseudo_gradient { local_steps: 4 "
                   "local_optimizer { learning_rate: 0.01 } } } }"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace catchment
