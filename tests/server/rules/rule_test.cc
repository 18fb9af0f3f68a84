#include "server/rules/rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/base/random.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

using testing::Each;

// Longer than the pieces in which the rules work, and no multiple of them.
constexpr int64_t kValues = 5000;

v1::Job GradientJob(float learning_rate, float momentum = 0) {
  v1::Job job;
  job.mutable_algorithm()->mutable_contribution()->mutable_gradient()->set_push_period(1);
  job.mutable_optimizer()->set_kind(v1::Optimizer::SGD);
  job.mutable_optimizer()->set_learning_rate(learning_rate);
  job.mutable_optimizer()->set_momentum(momentum);
  return job;
}

v1::Job ElasticJob(float moving_rate, int workers = 1) {
  v1::Job job;
  job.set_workers(workers);
  job.mutable_algorithm()->mutable_consistency()->mutable_synchronous();
  job.mutable_algorithm()->mutable_contribution()->mutable_elastic()->set_moving_rate(moving_rate);
  return job;
}

std::vector<float> RandomVector(uint64_t seed) {
  Random random(seed);
  std::vector<float> values(kValues);
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

Rule::Center CenterOf(std::vector<float>* weights, float learning_rate = 1) {
  return {.size = static_cast<int64_t>(weights->size()),
          .weights = weights->data(),
          .learning_rate = learning_rate};
}

// ------------------------------------------------------------------------------------------ accrued gradient

// p random gradients, of 1, 4, 9, ... samples.
struct Group {
  explicit Group(int p) {
    for (int i = 0; i < p; ++i) gradients.push_back(RandomVector(100 + i));
    for (int i = 0; i < p; ++i)
      contributions.push_back({gradients[i].data(), static_cast<uint32_t>((i + 1) * (i + 1))});
  }
  double Mean(int64_t k) const {
    double sum = 0, samples = 0;
    for (const Rule::Input& contribution : contributions) {
      if (contribution.samples == 0) continue;
      sum += contribution.samples * double{contribution.values[k]};
      samples += contribution.samples;
    }
    return sum / samples;
  }

  std::vector<std::vector<float>> gradients;
  std::vector<Rule::Input> contributions;
};

// Over all of a long block, not its first piece alone.
TEST(AccruedGradientTest, CompensatesEveryValueOfEachContribution) {
  v1::Job job = GradientJob(1);
  v1::DelayCompensation* const config =
      job.mutable_algorithm()->mutable_compensation()->mutable_delay_compensated();
  config->set_adaptive(true);
  config->set_lambda(0.5f);
  config->set_decay(0.9f);
  const auto rule = MakeRule(job);
  ASSERT_EQ(rule->num_states(), 1);
  const std::vector<float> gradients[] = {RandomVector(1), RandomVector(2)};
  const std::vector<float> sent[] = {RandomVector(3), RandomVector(4)};
  std::vector<float> weights = RandomVector(5), ms(kValues, 0.25f);
  const std::vector<float> before = weights;
  Rule::Center center = CenterOf(&weights, 0.5f);
  center.states[0] = ms.data();
  const std::vector<float> nan(kValues, std::numeric_limits<float>::quiet_NaN());
  const std::vector<Rule::Input> contributions = {
      {.values = gradients[0].data(), .samples = 1, .sent = sent[0].data()},
      {.values = gradients[1].data(), .samples = 3, .sent = sent[1].data()},
      {.values = nan.data(), .samples = 0, .sent = sent[1].data()}};
  ASSERT_TRUE(rule->Apply(contributions, center, nullptr));
  for (int64_t i = 0; i < kValues; ++i) {
    double square = 0.25, sum = 0;
    for (int c = 0; c < 2; ++c) {
      const double g = gradients[c][i];
      square = 0.9 * square + 0.1 * g * g;
      const double now = g + 0.5 / std::sqrt(square + 1e-7) * g * g * (double{before[i]} - sent[c][i]);
      sum += contributions[c].samples / 4.0 * now;
    }
    ASSERT_NEAR(weights[i], before[i] - 0.5 * sum, 1e-5 * (1 + std::abs(sum))) << i;
    ASSERT_NEAR(ms[i], square, 1e-5 * (1 + square)) << i;
  }
}

// The momentum that gap-aware averages, 0.001 v^2 after the first step, is there for all of a long block too.
TEST(AccruedGradientTest, CompensationSeesTheStepOfEveryValue) {
  v1::Job job = GradientJob(1, 0.5f);
  job.mutable_algorithm()->mutable_compensation()->mutable_gap_aware();
  const auto rule = MakeRule(job);
  ASSERT_EQ(rule->num_states(), 2);
  const std::vector<float> g = RandomVector(1), v_before = RandomVector(2);
  std::vector<float> weights = RandomVector(3), v = v_before, ra(kValues);
  Rule::Center center = CenterOf(&weights);
  center.states[0] = v.data();
  center.states[1] = ra.data();
  const std::vector<float> sent = weights;
  ASSERT_TRUE(rule->Apply({{.values = g.data(), .samples = 1, .sent = sent.data()}}, center, nullptr));
  for (int64_t i = 0; i < kValues; ++i) {
    const double step = 0.5 * v_before[i] + g[i];
    ASSERT_NEAR(v[i], step, 1e-6 * (1 + std::abs(step))) << i;
    ASSERT_NEAR(ra[i], 0.001 * step * step, 1e-7 * (1 + step * step)) << i;
  }
}

TEST(AccruedGradientTest, ContributionsOfNoWeightChangeNothing) {
  v1::Job job = GradientJob(1);
  job.mutable_algorithm()->mutable_compensation()->mutable_exponential()->set_rate(1);
  const auto rule = MakeRule(job);
  const std::vector<float> g = RandomVector(1);
  std::vector<float> weights = RandomVector(2), copy(kValues);
  const std::vector<float> before = weights;
  const std::vector<Rule::Input> contributions(2, {.values = g.data(), .samples = 1, .staleness = 1000});
  EXPECT_FALSE(rule->Apply(contributions, CenterOf(&weights), copy.data()));
  EXPECT_EQ(weights, before);
  EXPECT_EQ(copy, before);
}

// A usual step is then not taken for 1000 times smaller than it is.
TEST(AccruedGradientTest, CompensationThatBeganLaterCountsItsOwnSteps) {
  v1::Job job = GradientJob(1, 0.5f);
  job.mutable_algorithm()->mutable_compensation()->mutable_gap_aware();
  const auto rule = MakeRule(job);
  const std::vector<float> g = RandomVector(1), sent = RandomVector(4);
  const auto weights_after = [&](uint64_t steps, uint64_t begin) {
    std::vector<float> weights = RandomVector(3), v = RandomVector(2), ra(kValues, 1e-4f);
    Rule::Center center = CenterOf(&weights);
    center.states[0] = v.data();
    center.states[1] = ra.data();
    center.steps = steps;
    center.compensation_begin = begin;
    EXPECT_TRUE(rule->Apply({{.values = g.data(), .samples = 1, .sent = sent.data()}}, center, nullptr));
    return weights;
  };
  EXPECT_EQ(weights_after(5002, 5000), weights_after(2, 0));
  EXPECT_NE(weights_after(5002, 0), weights_after(2, 0));
}

// Halves the rate, and records its arguments.
struct HalvingControl final : MomentumControl {
  Setting Set(const Stale& now) override {
    stale = now;
    return {0.25f, 0.5f};
  }
  void Stepped(uint64_t version, const float* weights) override {
    stepped = version;
    after = weights[0];
  }
  v1::MomentumState state() const override { return {}; }
  void Restore(const v1::MomentumState&) override {}

  Stale stale;
  uint64_t stepped = 0;
  float after = 0;
};

TEST(AccruedGradientTest, MomentumIsSetByTheContributionsThatHaveSamples) {
  const auto rule = MakeRule(GradientJob(1, 0.9f));
  const std::vector<float> g[] = {RandomVector(1), RandomVector(2), RandomVector(3)};
  std::vector<float> weights(kValues), v(kValues, 4.0f);
  HalvingControl control;
  Rule::Center center = CenterOf(&weights, 0.5f);
  center.states[0] = v.data();
  center.version = 11;
  center.momentum = &control;
  ASSERT_TRUE(rule->Apply(
      {{.values = g[0].data(), .samples = 0, .version = 3, .staleness = 70, .measured_staleness = 7},
       {.values = g[1].data(), .samples = 1, .version = 8, .staleness = 20, .measured_staleness = 2},
       {.values = g[2].data(), .samples = 1, .version = 9, .staleness = 10, .measured_staleness = 1}},
      center, nullptr));
  EXPECT_EQ(control.stale.version, 8u);
  EXPECT_EQ(control.stale.tau, 1.5) << "the mean over the samples";
  EXPECT_EQ(control.stale.gradient, g[1].data());
  EXPECT_EQ(control.stale.learning_rate, 0.5f);
  EXPECT_EQ(control.stepped, 11u);
  EXPECT_EQ(control.after, weights[0]);
  for (int64_t i = 0; i < kValues; ++i) {
    // v = 0.25 * 4 + the mean ; w = -0.5 * 0.5 * v
    ASSERT_NEAR(weights[i], -0.25 * (1 + (double{g[1][i]} + g[2][i]) / 2), 1e-6) << i;
  }
}

class AccruedGradientGroupTest : public testing::TestWithParam<int> {};

TEST_P(AccruedGradientGroupTest, AverageWeighsBySamples) {
  const auto rule = MakeRule(GradientJob(1));
  Group group(GetParam());
  if (GetParam() > 2) {  // one takes no part, whatever it holds
    group.contributions[1].samples = 0;
    group.gradients[1].assign(kValues, std::numeric_limits<float>::quiet_NaN());
  }
  std::vector<float> weights = RandomVector(4), copy(kValues);
  const std::vector<float> before = weights;
  EXPECT_TRUE(rule->Apply(group.contributions, CenterOf(&weights, 0.5f), copy.data()));
  for (int64_t i = 0; i < kValues; ++i) ASSERT_NEAR(weights[i], before[i] - 0.5 * group.Mean(i), 1e-6) << i;
  EXPECT_EQ(copy, weights);
}

TEST_P(AccruedGradientGroupTest, BlocksHaveTheBitsOfOneBlock) {
  const auto rule = MakeRule(GradientJob(1, 0.9f));
  const Group group(GetParam());
  const std::vector<float> start = RandomVector(4), momentum = RandomVector(5);
  std::vector<float> whole = start, whole_momentum = momentum;
  rule->Apply(group.contributions, {kValues, 0, whole.data(), {whole_momentum.data(), nullptr}, 0, 0.5f},
              nullptr);
  for (int64_t block : {1, 7, 1000, 4999}) {
    std::vector<float> weights = start, state = momentum;
    for (int64_t begin = 0; begin < kValues; begin += block) {
      std::vector<Rule::Input> parts = group.contributions;
      for (Rule::Input& part : parts) part.values += begin;
      const int64_t n = std::min(block, kValues - begin);
      rule->Apply(parts, {n, begin, weights.data() + begin, {state.data() + begin, nullptr}, 0, 0.5f},
                  nullptr);
    }
    EXPECT_EQ(weights, whole) << block;
    EXPECT_EQ(state, whole_momentum) << block;
  }
}

INSTANTIATE_TEST_SUITE_P(WorkersTest, AccruedGradientGroupTest, testing::Values(1, 2, 3, 4, 5, 8, 11));

TEST(AccruedGradientRuleTest, SumIsTakenInTheGivenOrder) {
  const auto rule = MakeRule(GradientJob(1));
  const std::vector<float> large(kValues, 1e8f), one(kValues, 1), minus(kValues, -1e8f);
  std::vector<float> weights(kValues, 0.0f);
  rule->Apply({{large.data(), 1}, {one.data(), 1}, {minus.data(), 1}}, CenterOf(&weights), nullptr);
  EXPECT_THAT(weights, Each(0.0f)) << "the 1 is lost in the shadow of 1e8";
  rule->Apply({{large.data(), 1}, {minus.data(), 1}, {one.data(), 1}}, CenterOf(&weights), nullptr);
  EXPECT_THAT(weights, Each(testing::FloatEq(-1.0f / 3)));
}

TEST(AccruedGradientRuleTest, LoneContributionIsTakenAsItIs) {
  const auto rule = MakeRule(GradientJob(1));
  const std::vector<float> g = RandomVector(1), other = RandomVector(2);
  std::vector<float> expected(kValues, 0.0f);
  for (int64_t i = 0; i < kValues; ++i) expected[i] -= g[i];
  // Alone, or among those that have no samples, in any place.
  for (int place = 0; place < 4; ++place) {
    std::vector<Rule::Input> contributions(place == 3 ? 1 : 3, {other.data(), 0});
    contributions[place % 3] = {g.data(), 7};
    std::vector<float> weights(kValues, 0.0f);
    EXPECT_TRUE(rule->Apply(contributions, CenterOf(&weights), nullptr));
    EXPECT_EQ(weights, expected) << place;
  }
}

TEST(AccruedGradientRuleTest, WithoutSamplesNoStepIsMade) {
  const auto rule = MakeRule(GradientJob(1));
  const std::vector<float> g(kValues, 1.0f);
  std::vector<float> weights = RandomVector(1), copy(kValues);
  const std::vector<float> before = weights;
  EXPECT_FALSE(rule->Apply({{g.data(), 0}, {g.data(), 0}}, CenterOf(&weights), copy.data()));
  EXPECT_FALSE(rule->Apply({}, CenterOf(&weights), nullptr));
  EXPECT_EQ(weights, before);
  EXPECT_EQ(copy, before);
}

TEST(AccruedGradientRuleTest, StepsOfTheOptimizerAreCountedOn) {
  v1::Job job = GradientJob(1);
  job.mutable_optimizer()->set_kind(v1::Optimizer::ADAM);
  job.mutable_optimizer()->set_beta1(0.9f);
  job.mutable_optimizer()->set_beta2(0.999f);
  job.mutable_optimizer()->set_epsilon(1e-8f);
  const auto rule = MakeRule(job);
  const std::vector<float> g = RandomVector(1);
  std::vector<float> weights = RandomVector(2), direct = weights;
  std::vector<std::vector<float>> states(4, std::vector<float>(kValues, 0.0f));
  const auto optimizer = MakeOptimizer(job.optimizer());
  for (uint64_t step = 0; step < 5; ++step) {
    rule->Apply({{g.data(), 1}},
                {kValues, 0, weights.data(), {states[0].data(), states[1].data()}, step, 0.1f}, nullptr);
    optimizer->Apply({0.1f, step + 1},
                     {kValues, g.data(), direct.data(), {states[2].data(), states[3].data()}, nullptr});
  }
  EXPECT_EQ(weights, direct);
}

// LARS has the norms of each tensor of the average, which does not come in pieces, and no room but the
// average's is written to. With trust_coefficient 1 and no momentum a tensor moves by lr * |w| / |g| * g.
TEST(AccruedGradientRuleTest, NormsAreOfTheWholeAverage) {
  constexpr int64_t kGuard = 2048;
  v1::Job job = GradientJob(1);
  job.mutable_optimizer()->set_kind(v1::Optimizer::LARS);
  job.mutable_optimizer()->set_trust_coefficient(1);
  const auto rule = MakeRule(job);
  for (int p : {1, 3}) {
    const Group group(p);
    std::vector<float> weights = RandomVector(4), state(kValues), average(kValues + kGuard, 7.0f);
    const std::vector<float> before = weights;
    const std::vector<int64_t> ends = {1500, 1501, kValues};
    Rule::Center center = CenterOf(&weights, 0.5f);
    center.states[0] = state.data();
    center.tensor_ends = ends;
    center.average = average.data();
    ASSERT_TRUE(rule->Apply(group.contributions, center, nullptr));
    for (size_t t = 0; t < ends.size(); ++t) {
      const int64_t begin = t == 0 ? 0 : ends[t - 1];
      double w = 0, g = 0;
      for (int64_t i = begin; i < ends[t]; ++i) {
        w += double{before[i]} * before[i];
        g += group.Mean(i) * group.Mean(i);
      }
      for (int64_t i = begin; i < ends[t]; ++i) {
        ASSERT_NEAR(weights[i], before[i] - 0.5 * std::sqrt(w / g) * group.Mean(i), 1e-5) << i;
      }
    }
    EXPECT_THAT(std::vector<float>(average.begin() + kValues, average.end()), Each(7.0f));
  }
}

// ---------------------------------------------------------------------------------------- elastic difference

// p workers' weights and the differences that they are answered with.
struct Workers {
  explicit Workers(int p) : x(p), d(p, std::vector<float>(kValues)) {
    for (int i = 0; i < p; ++i) x[i] = RandomVector(100 + i);
  }
  std::vector<Rule::Input> Contributions() {
    std::vector<Rule::Input> contributions;
    for (size_t i = 0; i < x.size(); ++i) contributions.push_back({x[i].data(), 1, d[i].data()});
    return contributions;
  }
  void Move() {
    for (size_t i = 0; i < x.size(); ++i) {
      for (int64_t k = 0; k < kValues; ++k) x[i][k] -= d[i][k];
    }
  }

  std::vector<std::vector<float>> x, d;
};

class ElasticDifferenceRuleTest : public testing::TestWithParam<int> {};

TEST_P(ElasticDifferenceRuleTest, SynchronousUpdateDrawsTheCenterToTheMeanAndNotToTheSum) {
  const int p = GetParam();
  const float alpha = 0.9f / static_cast<float>(p);
  const auto rule = MakeRule(ElasticJob(alpha, p));
  Workers workers(p);
  std::vector<float> center = RandomVector(1), copy(kValues);
  const std::vector<float> before = center;
  rule->Apply(workers.Contributions(), CenterOf(&center), copy.data());
  const double beta = p * double{alpha};
  for (int64_t k = 0; k < kValues; ++k) {
    double mean = 0;
    for (const std::vector<float>& x : workers.x) mean += x[k] / p;
    ASSERT_NEAR(center[k], (1 - beta) * before[k] + beta * mean, 2e-6) << k;
    for (int i = 0; i < p; ++i) ASSERT_FLOAT_EQ(workers.d[i][k], alpha * (workers.x[i][k] - before[k]));
  }
  EXPECT_EQ(copy, center);
}

TEST_P(ElasticDifferenceRuleTest, ExchangeConservesTheSumOfAllWeights) {
  const int p = GetParam();
  const auto rule = MakeRule(ElasticJob(0.9f / static_cast<float>(p), p));
  Workers workers(p);
  std::vector<float> center = RandomVector(1);
  const auto sum = [&](int64_t k) {
    double sum = center[k];
    for (const std::vector<float>& x : workers.x) sum += x[k];
    return sum;
  };
  std::vector<double> before(kValues);
  for (int64_t k = 0; k < kValues; ++k) before[k] = sum(k);
  for (int round = 0; round < 10; ++round) {
    // All at once, and one after another.
    std::vector<Rule::Input> all = workers.Contributions();
    if (round % 2 == 0) {
      rule->Apply(all, CenterOf(&center), nullptr);
    } else {
      for (const Rule::Input& one : all) rule->Apply({one}, CenterOf(&center), nullptr);
    }
    workers.Move();
  }
  for (int64_t k = 0; k < kValues; ++k) ASSERT_NEAR(sum(k), before[k], 1e-5) << k;
}

TEST_P(ElasticDifferenceRuleTest, ConsensusIsAFixedPointForAThousandRounds) {
  const int p = GetParam();
  const auto rule = MakeRule(ElasticJob(0.9f / static_cast<float>(p), p));
  std::vector<float> center = RandomVector(1);
  const std::vector<float> consensus = center;
  Workers workers(p);
  workers.x.assign(p, center);
  for (int round = 0; round < 1000; ++round) {
    rule->Apply(workers.Contributions(), CenterOf(&center), nullptr);
    workers.Move();
  }
  EXPECT_EQ(center, consensus);
  for (const std::vector<float>& x : workers.x) EXPECT_EQ(x, consensus);
}

// The distance between the center and the members' mean, which an exchange multiplies by 1 - (p + 1) alpha.
TEST(ElasticExchangeTest, WorkersBeyondTheJobsNumberDoNotMakeTheExchangeDiverge) {
  const int joined = 6;
  const auto rule = MakeRule(ElasticJob(0.45f, /*workers=*/2));
  Workers workers(joined);
  std::vector<float> center(kValues, 100);
  for (int round = 0; round < 50; ++round) {
    rule->Apply(workers.Contributions(), CenterOf(&center), nullptr);
    workers.Move();
  }
  for (int64_t k = 0; k < kValues; ++k) {
    double mean = 0;
    for (const std::vector<float>& x : workers.x) mean += x[k] / joined;
    ASSERT_NEAR(center[k], mean, 1e-3) << k;
  }
}

// The workers together move the center as far as the job's own number of workers would.
TEST(ElasticExchangeTest, WorkersBeyondTheJobsNumberShareItsMovingRate) {
  const auto rule = MakeRule(ElasticJob(0.25f, /*workers=*/2));
  Workers workers(4);
  for (std::vector<float>& x : workers.x) x.assign(kValues, 0);
  std::vector<float> center(kValues, 8);
  rule->Apply(workers.Contributions(), CenterOf(&center), nullptr);
  EXPECT_EQ(center, std::vector<float>(kValues, 8 - 4 * 0.125f * 8));
}

INSTANTIATE_TEST_SUITE_P(WorkersTest, ElasticDifferenceRuleTest, testing::Range(1, 9));

TEST(RuleTest, OnlyTheElasticDifferenceAnswersEachContribution) {
  EXPECT_FALSE(MakeRule(GradientJob(1))->has_answers());
  EXPECT_EQ(MakeRule(GradientJob(1, 0.9f))->num_states(), 1);
  EXPECT_TRUE(MakeRule(ElasticJob(0.5f))->has_answers());
  EXPECT_EQ(MakeRule(ElasticJob(0.5f))->num_states(), 0);
}

}  // namespace
}  // namespace catchment
