// Jobs whose optimizer takes norms over whole tensors, on shards: however many servers there are and however
// small the blocks, the weights are those of the optimizer on the whole model.
#include <gtest/gtest.h>

#include <vector>

#include "common/base/random.h"
#include "optim/optimizer.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

// Longer and shorter than the pieces in which averages are made.
const std::vector<TensorSpec> kTensors = {{"a.weight", {30, 50}}, {"a.bias", {50}}, {"b.weight", {5}},
                                          {"b.bias", {1}},        {"c", {700, 2}},  {"d", {64}}};
constexpr int64_t kValues = 1500 + 50 + 5 + 1 + 1400 + 64;
constexpr int kRounds = 20;

v1::Job Job(v1::Optimizer::Kind kind, bool synchronous) {
  v1::Job job = GradientJob(synchronous, kind == v1::Optimizer::LAMB ? 0.01f : 1);
  v1::Optimizer* optimizer = job.mutable_optimizer();
  optimizer->set_kind(kind);
  optimizer->set_momentum(0.9f);
  optimizer->set_trust_coefficient(0.01f);
  optimizer->set_beta1(0.9f);
  optimizer->set_beta2(0.999f);
  optimizer->set_epsilon(1e-6f);
  optimizer->set_weight_decay(0.01f);
  return job;
}

std::vector<float> Draw(uint64_t seed) {
  Random random(seed);
  std::vector<float> values(kValues);
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

std::vector<float> Initial() { return Draw(1); }
std::vector<float> Gradient(int round, uint32_t worker) { return Draw(Derive(Derive(2, round), worker)); }

struct Split {
  int servers;
  int64_t block_size;
};

// Worker i's gradient is of 1 + 2i samples. Workers' pushes come in order.
std::vector<float> Train(const v1::Job& job, uint32_t workers, const Split& split) {
  const auto layout =
      *ParameterLayout::Create(kTensors, split.servers, split.block_size, Cuts::kBetweenTensors);
  const bool synchronous = job.algorithm().consistency().has_synchronous();
  const std::vector<float> initial = Initial();
  std::vector<uint32_t> members;
  for (uint32_t w = 0; w < workers; ++w) members.push_back(w);
  std::vector<float> weights;
  for (int s = 0; s < split.servers; ++s) {
    const Range range = layout.shard(s);
    Shard::Contents contents;
    contents.weights.assign(initial.begin() + range.begin, initial.begin() + range.end);
    ShardHarness harness(job, layout, s, members, std::move(contents));
    for (int round = 0; round < kRounds; ++round) {
      for (uint32_t w = 0; w < workers; ++w) {
        const std::vector<float> gradient = Gradient(round, w);
        for (int b = 0; b < layout.num_blocks(s); ++b) {
          const Range block = layout.block(s, b);
          Send send{w, v1::Block::PUSH_PULL, static_cast<uint64_t>(round + 1)};
          send.version = synchronous ? round : 0;
          send.block = b;
          send.samples = 1 + 2 * w;
          EXPECT_TRUE(
              harness.HandleValues(send, {gradient.begin() + block.begin, gradient.begin() + block.end})
                  .ok());
        }
      }
      harness.Take();
    }
    const std::vector<float> part = harness.shard().Weights();
    weights.insert(weights.end(), part.begin(), part.end());
  }
  return weights;
}

// Without servers and blocks; gradients[i] in turn.
std::vector<float> TrainSequentially(const v1::Job& job, const std::vector<std::vector<float>>& gradients) {
  const auto optimizer = MakeOptimizer(job.optimizer());
  std::vector<int64_t> ends;
  for (const TensorSpec& tensor : kTensors) ends.push_back((ends.empty() ? 0 : ends.back()) + tensor.size());
  std::vector<float> weights = Initial(), a(kValues), b(kValues);
  for (size_t i = 0; i < gradients.size(); ++i) {
    optimizer->Apply({job.optimizer().learning_rate(), i + 1},
                     {kValues, gradients[i].data(), weights.data(), {a.data(), b.data()}, nullptr, ends});
  }
  return weights;
}

const Split kSplits[] = {{1, 1 << 18}, {1, 1},       {1, 100},  {2, 1 << 18},
                         {2, 60},      {3, 1 << 18}, {3, 1500}, {6, 7}};

class WholeTensorsTest : public testing::TestWithParam<v1::Optimizer::Kind> {};

TEST_P(WholeTensorsTest, LoneWorkerIsTheSequentialOptimizerHoweverTheTensorsLie) {
  for (bool synchronous : {true, false}) {
    const v1::Job job = Job(GetParam(), synchronous);
    std::vector<std::vector<float>> gradients;
    for (int round = 0; round < kRounds; ++round) gradients.push_back(Gradient(round, 0));
    const std::vector<float> sequential = TrainSequentially(job, gradients);
    EXPECT_NE(sequential, Initial());
    for (const Split& split : kSplits) {
      EXPECT_EQ(Train(job, 1, split), sequential)
          << split.servers << " servers, blocks of " << split.block_size;
    }
  }
}

TEST_P(WholeTensorsTest, GroupIsOneWorkerWithTheirMeanHoweverTheTensorsLie) {
  const v1::Job job = Job(GetParam(), true);
  std::vector<std::vector<float>> means;
  for (int round = 0; round < kRounds; ++round) {
    // 1, 3 and 5 of 9 samples.
    const std::vector<float> g[] = {Gradient(round, 0), Gradient(round, 1), Gradient(round, 2)};
    std::vector<float> mean(kValues);
    for (int64_t i = 0; i < kValues; ++i) {
      mean[i] = static_cast<float>((double{g[0][i]} + 3 * double{g[1][i]} + 5 * double{g[2][i]}) / 9);
    }
    means.push_back(mean);
  }
  const std::vector<float> sequential = TrainSequentially(job, means);
  const std::vector<float> one = Train(job, 3, kSplits[0]);
  for (int64_t i = 0; i < kValues; ++i) ASSERT_NEAR(one[i], sequential[i], 2e-5) << "value " << i;
  for (const Split& split : kSplits) {
    EXPECT_EQ(Train(job, 3, split), one) << split.servers << " servers, blocks of " << split.block_size;
  }
}

TEST_P(WholeTensorsTest, AsynchronousPushesInTheSameOrderGiveTheSameBitsHoweverTheTensorsLie) {
  const v1::Job job = Job(GetParam(), false);
  const std::vector<float> one = Train(job, 3, kSplits[0]);
  for (const Split& split : kSplits) {
    EXPECT_EQ(Train(job, 3, split), one) << split.servers << " servers, blocks of " << split.block_size;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, WholeTensorsTest,
                         testing::Values(v1::Optimizer::LARS, v1::Optimizer::LARC, v1::Optimizer::LAMB),
                         [](const auto& info) { return v1::Optimizer::Kind_Name(info.param); });

}  // namespace
}  // namespace catchment
