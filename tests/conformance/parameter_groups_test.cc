// Parameters in groups are trained as if each group had an optimizer to itself, bit for bit, however they are
// split between servers and blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

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
const std::vector<int64_t> kTensors = {30, 60, 7, 53};
constexpr int kFrozen = 2;  // the third of them

constexpr char kGroups[] =
    "groups { names: 'w0' weight_decay: 0 } groups { names: 'w1' weight_decay: 0.2 learning_rate_factor: 0.5 } "
    "groups { names: '*2' frozen: true }";
constexpr char kGroupsOfRates[] =
    "groups { names: 'w0' names: 'w1' learning_rate_factor: 0.5 } groups { names: '*2' frozen: true }";

// The groups are added to the complete job, whose own model has other tensors.
v1::Job GroupedJob(const std::string& preset, int workers, const std::string& more,
                   const std::string& groups) {
  v1::Job job = PresetJob(preset, workers, more);
  v1::Optimizer grouped;
  CHECK(google::protobuf::TextFormat::ParseFromString(groups, &grouped));
  *job.mutable_optimizer()->mutable_groups() = grouped.groups();
  return job;
}

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

Range Tensor(int index) {
  Range range;
  for (int t = 0; t <= index; ++t) range = {range.end, range.end + kTensors[t]};
  return range;
}

std::vector<float> Values(const std::vector<float>& all, int tensor) {
  return {all.begin() + Tensor(tensor).begin, all.begin() + Tensor(tensor).end};
}

std::vector<float> Train(const v1::Job& job, int batch, const VirtualCluster::Split& split) {
  VirtualCluster cluster(job, Initial(), static_cast<int>(job.workers()), split);
  std::vector<VirtualCluster::Work> works;
  for (int worker = 0; worker < static_cast<int>(job.workers()); ++worker) {
    works.push_back([&, worker](Parameters* parameters) {
      const auto algorithm = MakeAlgorithm(job, kValues, parameters, ModelMemory(), &cluster.layout());
      ASSERT_TRUE(algorithm->Start(0).ok());
      for (int round = 0; round < kRounds; ++round) {
        const int64_t begin = (int64_t{round} * job.workers() + worker) * batch;
        const auto gradient = InLayers([&](absl::Span<const float> w, absl::Span<float> g) {
          Problem().Gradient(begin, begin + batch, w, g);
        });
        ASSERT_TRUE(algorithm->Run({static_cast<uint32_t>(batch), 0}, gradient).ok());
      }
      ASSERT_TRUE(algorithm->Finish().ok());
    });
  }
  cluster.Run(works);
  return cluster.Weights();
}

// The settings that a tensor has by kGroups, without groups.
v1::Optimizer SettingsOf(v1::Optimizer optimizer, int tensor) {
  optimizer.clear_groups();
  if (tensor == 0) optimizer.set_weight_decay(0);
  if (tensor == 1) optimizer.set_weight_decay(0.2f);
  if (tensor == 1) optimizer.set_learning_rate(0.5f * optimizer.learning_rate());
  return optimizer;
}

// One optimizer for each tensor, without servers or workers.
std::vector<float> TrainApart(const v1::Optimizer& optimizer, int batch) {
  std::vector<float> weights = Initial(), gradient(kValues), a(kValues), b(kValues);
  for (int round = 0; round < kRounds; ++round) {
    Problem().Gradient(int64_t{round} * batch, int64_t{round + 1} * batch, weights, absl::MakeSpan(gradient));
    for (int tensor = 0; tensor < static_cast<int>(kTensors.size()); ++tensor) {
      if (tensor == kFrozen) continue;
      const v1::Optimizer own = SettingsOf(optimizer, tensor);
      const Range at = Tensor(tensor);
      const int64_t end = at.size();
      MakeOptimizer(own)->Apply({own.learning_rate(), static_cast<uint64_t>(round + 1)},
                                {.n = end,
                                 .gradient = &gradient[at.begin],
                                 .weights = &weights[at.begin],
                                 .states = {&a[at.begin], &b[at.begin]},
                                 .tensor_ends = absl::MakeConstSpan(&end, 1)});
    }
  }
  return weights;
}

constexpr const char* kOptimizers[] = {
    "kind: SGD learning_rate: 0.001 momentum: 0 weight_decay: 0.05",
    "kind: SGD learning_rate: 0.0005 momentum: 0.9 weight_decay: 0.05",
    "kind: SGD learning_rate: 0.0005 momentum: 0.9 nesterov: true clip_value: 3",
    "kind: RMSPROP learning_rate: 0.01 weight_decay: 0.05",
    "kind: ADAGRAD learning_rate: 0.1",
    "kind: ADAMW learning_rate: 0.02 weight_decay: 0.05",
    "kind: LARS learning_rate: 0.5 weight_decay: 0.05 trust_coefficient: 0.01",
    "kind: LAMB learning_rate: 0.02 weight_decay: 0.05",
};

class ParameterGroupsTest : public testing::TestWithParam<const char*> {
 protected:
  static std::string Field() { return std::string("optimizer { ") + GetParam() + " }"; }
};

TEST_P(ParameterGroupsTest, AreOptimizersApartHoweverTheParametersAreSplit) {
  const v1::Job job = GroupedJob("sync", 1, Field(), kGroups);
  const std::vector<float> apart = TrainApart(job.optimizer(), 16);
  ASSERT_EQ(Values(apart, kFrozen), Values(Initial(), kFrozen));
  ASSERT_NE(apart, Train(GroupedJob("sync", 1, Field(), ""), 16, {.tensors = kTensors}));
  for (const VirtualCluster::Split& split : {VirtualCluster::Split{1, 1 << 18, kTensors},
                                             {1, 16, kTensors},
                                             {3, 1 << 18, kTensors},
                                             {3, 7, kTensors}}) {
    EXPECT_EQ(Train(job, 16, split), apart) << split.num_shards << " servers, blocks of " << split.block_size;
  }
}

TEST_P(ParameterGroupsTest, OfAveragesDoNotDependOnTheSplit) {
  const v1::Job job = GroupedJob("sync", 3, Field(), kGroups);
  const std::vector<float> one = Train(job, 4, {1, 1 << 18, kTensors});
  EXPECT_EQ(Values(one, kFrozen), Values(Initial(), kFrozen));
  EXPECT_EQ(Train(job, 4, {3, 7, kTensors}), one);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ParameterGroupsTest, testing::ValuesIn(kOptimizers),
                         [](const auto& info) { return std::to_string(info.index); });

// The servers subtract what the worker has, x_pulled - (x_pulled - x), and so round twice a round.
TEST(ParameterGroups, AreThoseOfTheLocalStepsWithPseudoGradients) {
  const std::string local = "kind: ADAMW learning_rate: 0.02 weight_decay: 0.05 schedule { decay: CONSTANT }";
  const v1::Job job = GroupedJob(
      "local_sgd", 1,
      "algorithm { contribution { pseudo_gradient { local_steps: 4 local_optimizer { " + local + " } } } }",
      kGroups);
  const std::vector<float> apart =
      TrainApart(job.algorithm().contribution().pseudo_gradient().local_optimizer(), 16);
  const std::vector<float> trained = Train(job, 16, {3, 16, kTensors});
  for (int64_t i = 0; i < kValues; ++i) ASSERT_NEAR(trained[i], apart[i], 2e-5) << "value " << i;
  EXPECT_EQ(Values(trained, kFrozen), Values(Initial(), kFrozen));
}

// The weight decay of the servers' optimizer, which is not that of gradients, does not move what is frozen.
TEST(ParameterGroups, AreFrozenOnTheServersTooWithPseudoGradients) {
  const v1::Job job = GroupedJob(
      "diloco", 2,
      "optimizer { weight_decay: 0.1 } algorithm { contribution { pseudo_gradient { local_steps: 5 } } }",
      kGroups);
  const std::vector<float> trained = Train(job, 4, {.tensors = kTensors});
  EXPECT_EQ(Values(trained, kFrozen), Values(Initial(), kFrozen));
  EXPECT_NE(Values(trained, 0), Values(Initial(), 0));
}

// Steps that workers make without an optimizer: of elastic averaging, and of Downpour between its fetches.
TEST(ParameterGroups, ChangeTheRatesOfWorkersOwnSteps) {
  for (const auto& [preset, more] :
       {std::pair("easgd", "optimizer { learning_rate: 0.005 }"),
        {"eamsgd", "optimizer { learning_rate: 0.0005 }"},
        {"downpour",
         "optimizer { learning_rate: 0.0002 } algorithm { contribution { gradient { push_period: 2 "
         "fetch_period: 4 local_learning_rate: 0.001 } } }"}}) {
    const v1::Job job = GroupedJob(preset, 2, more, kGroupsOfRates);
    const std::vector<float> trained = Train(job, 4, {1, 1 << 18, kTensors});
    EXPECT_EQ(Values(trained, kFrozen), Values(Initial(), kFrozen)) << preset;
    EXPECT_EQ(Train(job, 4, {3, 7, kTensors}), trained) << preset;
    // All parameters in one group: half of the rate is a factor of a half.
    v1::Job halved = GroupedJob(preset, 2, more, ""), factor = halved;
    v1::ParameterGroup* const all = factor.mutable_optimizer()->add_groups();
    all->add_names("*");
    all->set_learning_rate_factor(0.5f);
    halved.mutable_optimizer()->set_learning_rate(0.5f * halved.optimizer().learning_rate());
    v1::AccruedGradient* const gradient =
        halved.mutable_algorithm()->mutable_contribution()->has_gradient()
            ? halved.mutable_algorithm()->mutable_contribution()->mutable_gradient()
            : nullptr;
    if (gradient != nullptr) gradient->set_local_learning_rate(0.5f * gradient->local_learning_rate());
    EXPECT_EQ(Train(factor, 4, {1, 16, kTensors}), Train(halved, 4, {1, 16, kTensors})) << preset;
  }
}

}  // namespace
}  // namespace catchment
