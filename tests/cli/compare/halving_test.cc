// The decisions of a search, on objectives whose optimum is known.
#include "cli/compare/halving.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(PlanRungs, EachRungHasAThirdOfTheTrialsWithThreeTimesTheShare) {
  const std::vector<Rung> rungs = PlanRungs(27);
  ASSERT_EQ(rungs.size(), 4u);
  EXPECT_EQ(rungs[0].trials, 27);
  EXPECT_DOUBLE_EQ(rungs[0].share, 1.0 / 27);
  EXPECT_EQ(rungs[2].trials, 3);
  EXPECT_DOUBLE_EQ(rungs[3].share, 1);
  EXPECT_DOUBLE_EQ(CostOf(rungs), 4);
}

TEST(PlanRungs, TheLastRungHasTheWholeBudgetForAnyNumberOfTrials) {
  for (int trials = 1; trials < 100; ++trials) {
    const std::vector<Rung> rungs = PlanRungs(trials);
    EXPECT_EQ(rungs.front().trials, trials);
    EXPECT_EQ(rungs.back().share, 1) << trials;
    EXPECT_LT(rungs.back().trials, kHalvingFactor) << trials;
    EXPECT_GE(rungs.back().trials, 1) << trials;
  }
}

TEST(PlanRungsThatCost, CostsThatAndEndsWithAChoice) {
  for (int trials = 2; trials < 60; ++trials) {
    const std::vector<Rung> rungs = PlanRungsThatCost(trials, 1);
    EXPECT_NEAR(CostOf(rungs), 1, 1e-12) << trials;
    EXPECT_GT(rungs.back().trials, 1) << trials;
  }
}

TEST(BestTrials, OrdersByTheFirstAndThenByTheSecondNumber) {
  EXPECT_THAT(BestTrials({4, 5, 6, 7}, {{{0.9, -2}}, {{0.9, -1}}, {{0.95, -9}}, {{0.1, 0}}}, 3),
              ElementsAre(6, 5, 4));
  EXPECT_THAT(BestTrials({3, 1}, {{{1, 1}}, {{1, 1}}}, 1), ElementsAre(3));
}

TEST(BestTrials, KeepsNoneThatFailed) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(BestTrials({0, 1, 2, 3}, {{{nan, 0}}, std::nullopt, {{0.1, nan}}, {{0.1, -1}}}, 3),
              ElementsAre(3));
  EXPECT_THAT(BestTrials({0}, {std::nullopt}, 1), IsEmpty());
}

// Carries out a search whose trials have the scores of `score(rung, share, trial)`. `random` draws which of
// the open runs ends next; null: they end in their order.
template <typename Score>
HalvingResult Halve(const std::vector<Rung>& rungs, const Score& score,
                    Promotion promotion = Promotion::kRungByRung, Random* random = nullptr, int kept = -1) {
  Halving halving(rungs, promotion, kept);
  std::vector<TrialRun> open = halving.NextRuns();
  while (!open.empty()) {
    const auto ending = open.begin() + (random == nullptr ? 0 : random->Below(open.size()));
    const TrialRun run = *ending;
    open.erase(ending);
    halving.Report(run, score(run.rung, halving.ShareOf(run.rung), run.trial));
    for (const TrialRun& next : halving.NextRuns()) open.push_back(next);
  }
  return halving.result();
}

TEST(Halving, IfAllFailTheRungBeforeDecides) {
  const HalvingResult result = Halve(PlanRungs(9), [](int rung, double, int trial) {
    return rung == 0 ? std::optional(TrialScore(-std::abs(trial - 4), 0)) : std::nullopt;
  });
  EXPECT_EQ(result.best, 4);
  EXPECT_EQ(result.rungs.size(), 2u);
}

TEST(Halving, HasNoBestTrialIfNoneHasAScore) {
  const HalvingResult result =
      Halve(PlanRungs(3), [](int, double, int) { return std::optional<TrialScore>(); });
  EXPECT_EQ(result.best, -1);
  EXPECT_EQ(result.rungs.size(), 1u);
}

TEST(Halving, RunsTheSharesOfTheRungs) {
  std::vector<double> shares;
  Halve(PlanRungsThatCost(14, 1), [&](int, double share, int) {
    shares.push_back(share);
    return std::optional(TrialScore(0, 0));
  });
  ASSERT_EQ(shares.size(), 14u + 4u);
  EXPECT_DOUBLE_EQ(shares.back(), 3 * shares.front());
}

TEST(Halving, RungByRungTheOrderInWhichRunsEndChangesNothing) {
  // Equal scores, too.
  const auto score = [](int, double, int trial) { return std::optional(TrialScore(trial % 4, 0)); };
  const HalvingResult in_order = Halve(PlanRungs(27), score);
  for (int seed = 1; seed < 20; ++seed) {
    Random random(seed);
    const HalvingResult result = Halve(PlanRungs(27), score, Promotion::kRungByRung, &random);
    ASSERT_EQ(result.rungs.size(), in_order.rungs.size());
    for (size_t rung = 0; rung < result.rungs.size(); ++rung)
      EXPECT_EQ(result.rungs[rung].trials, in_order.rungs[rung].trials);
  }
}

// Li et al.'s figure 1 and algorithm 2: a trial goes on as soon as it is among the best third of those that
// have ended.
TEST(Halving, AtOnceATrialGoesOnBeforeItsRungHasEnded) {
  Halving halving(PlanRungs(9), Promotion::kAtOnce);
  EXPECT_EQ(halving.NextRuns().size(), 9u);
  const auto next_after = [&](int trial, double score) {
    halving.Report({trial, 0}, TrialScore(score, 0));
    std::vector<int> next;
    for (const TrialRun& run : halving.NextRuns()) {
      EXPECT_EQ(run.rung, 1);
      next.push_back(run.trial);
    }
    return next;
  };
  EXPECT_THAT(next_after(7, 0.2), IsEmpty());
  EXPECT_THAT(next_after(3, 0.5), IsEmpty());
  EXPECT_THAT(next_after(5, 0.1), ElementsAre(3));
  EXPECT_THAT(next_after(0, 0.9), ElementsAre(0)) << "the best of four, although one of them has gone on";
  EXPECT_THAT(next_after(1, 0.6), IsEmpty());
  EXPECT_THAT(next_after(2, 0.3), ElementsAre(1)) << "among the best two of six";
  halving.Report({3, 1}, TrialScore(0.6, 0));
  halving.Report({0, 1}, TrialScore(0.95, 0));
  EXPECT_THAT(halving.NextRuns(), IsEmpty());
  halving.Report({1, 1}, std::nullopt);
  const std::vector<TrialRun> last = halving.NextRuns();
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].trial, 0);
  EXPECT_EQ(last[0].rung, 2);
  EXPECT_EQ(halving.result().best, 0) << "that of the last rung with a score";
}

TEST(Halving, AtOnceTheBestOfEachRungGoOnInAnyOrderAndFewMore) {
  const std::vector<Rung> rungs = PlanRungs(27);
  const auto score = [](int, double, int trial) {
    return trial % 5 == 0 ? std::nullopt : std::optional(TrialScore((trial * 7) % 27, 0));
  };
  double runs = 0;
  constexpr int kSeeds = 200;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    Random random(seed);
    const HalvingResult result = Halve(rungs, score, Promotion::kAtOnce, &random);
    ASSERT_EQ(result.rungs.size(), rungs.size());
    // The scores of a trial are the same in each rung, so that the best one always goes on.
    EXPECT_EQ(result.best, Halve(rungs, score).best);
    EXPECT_THAT(result.rungs[1].trials, testing::IsSupersetOf(Halve(rungs, score).rungs[1].trials));
    for (const RungResult& rung : result.rungs) runs += rung.rung.share * rung.trials.size() / kSeeds;
  }
  EXPECT_GT(runs, CostOf(rungs));
  EXPECT_LT(runs, 1.6 * CostOf(rungs));
}

TEST(Halving, ATrialThatIsKeptIsComparedInTheLastRung) {
  // Trial 5 is the worst of the first rung, and the best of the last.
  const auto score = [](int rung, double, int trial) {
    return std::optional(TrialScore(trial != 5 ? 0.1 * trial : rung == 0 ? -1 : 2, 0));
  };
  for (const Promotion promotion : {Promotion::kRungByRung, Promotion::kAtOnce}) {
    for (int seed = 1; seed < 20; ++seed) {
      Random random(seed);
      EXPECT_EQ(Halve(PlanRungs(9), score, promotion, &random, 5).best, 5);
      EXPECT_EQ(Halve(PlanRungsThatCost(11, 1), score, promotion, &random, 5).best, 5);
      EXPECT_EQ(Halve(PlanRungsThatCost(11, 1), score, promotion, &random).best, 10);
    }
  }
  const HalvingResult result = Halve(PlanRungsThatCost(11, 1), score, Promotion::kRungByRung, nullptr, 5);
  EXPECT_THAT(result.rungs[1].trials, ElementsAre(10, 9, 5));
}

TEST(Halving, ATrialThatIsKeptLosesIfItFailsOrAnotherIsBetterInTheLastRung) {
  const auto failed = [](int, double, int trial) {
    return trial == 5 ? std::nullopt : std::optional(TrialScore(trial, 0));
  };
  EXPECT_THAT(Halve(PlanRungsThatCost(9, 1), failed, Promotion::kRungByRung, nullptr, 5).rungs[1].trials,
              ElementsAre(8, 7, 6));
  const auto worse = [](int, double, int trial) { return std::optional(TrialScore(trial, 0)); };
  const HalvingResult result = Halve(PlanRungs(9), worse, Promotion::kRungByRung, nullptr, 0);
  EXPECT_EQ(result.best, 8);
  EXPECT_THAT(result.rungs[2].trials, ElementsAre(8, 0)) << "there is one place in the last rung";
}

// The loss of training with a learning rate and a momentum, both as coordinates, after a share of the budget:
// it falls with the budget, sooner with a higher rate, to a floor that depends on the distance to the
// optimum. Short runs prefer higher rates than long ones do, so that they mislead.
struct Objective {
  double rate;
  double momentum;

  double Floor(const std::vector<double>& at) const {
    return 4 * (at[0] - rate) * (at[0] - rate) + (at[1] - momentum) * (at[1] - momentum);
  }
  double Loss(const std::vector<double>& at, double share) const {
    return Floor(at) + 0.02 * (1 - at[0]) * (1 / share - 1) / 27;
  }
};

TEST(Halving, FindsTheOptimumWithHalfOfTheBudgetOfARandomSearch) {
  constexpr int kObjectives = 300, kRandomTrials = 16, kTrials = 54;
  const std::vector<Rung> rungs = PlanRungs(kTrials);
  ASSERT_LE(CostOf(rungs), kRandomTrials / 2.0);
  Random random(1);
  double halving = 0, search = 0;
  for (int i = 0; i < kObjectives; ++i) {
    const Objective objective = {random.Uniform(0.1, 0.9), random.Uniform(0.1, 0.9)};
    const HalvingResult result = Halve(rungs, [&](int, double share, int trial) {
      return std::optional(TrialScore(-objective.Loss(TrialPoint(trial, 2), share), 0));
    });
    const double found = objective.Floor(TrialPoint(result.best, 2));
    EXPECT_LT(found, 0.1) << objective.rate << " " << objective.momentum;
    halving += found / kObjectives;
    double best = 1e9;
    for (int trial = 0; trial < kRandomTrials; ++trial)
      best = std::min(best, objective.Floor({random.Uniform(), random.Uniform()}));
    search += best / kObjectives;
  }
  EXPECT_LT(halving, 0.02);
  EXPECT_LT(halving, search);
}

TEST(TrialPoint, PointsCoverEachDimensionEvenly) {
  constexpr int kTrials = 210, kCells = 5;
  for (int dimension = 0; dimension < kMaxDimensions; ++dimension) {
    std::vector<int> cells(kCells);
    for (int trial = 0; trial < kTrials; ++trial) {
      const double at = TrialPoint(trial, kMaxDimensions)[dimension];
      ASSERT_GT(at, 0);
      ASSERT_LT(at, 1);
      ++cells[static_cast<int>(at * kCells)];
    }
    for (const int n : cells) EXPECT_NEAR(n, kTrials / kCells, 6) << dimension;
  }
  EXPECT_THAT(TrialPoint(0, 2), ElementsAre(0.5, 1.0 / 3));
}

TEST(ParseDimension, ReadsRangesAndChoices) {
  const auto rate = ParseDimension("optimizer.learning_rate=log:0.001..1");
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_EQ(rate->path, "optimizer.learning_rate");
  EXPECT_EQ(ValueAt(*rate, 0.5), "0.03162");
  EXPECT_EQ(ValueAt(*rate, 1e-9), "0.001");
  const auto momentum = ParseDimension("optimizer.momentum=0..0.8");
  ASSERT_TRUE(momentum.ok()) << momentum.status();
  EXPECT_EQ(ValueAt(*momentum, 0.25), "0.2");
  const auto preset = ParseDimension("algorithm.preset=sync,downpour,easgd");
  ASSERT_TRUE(preset.ok()) << preset.status();
  EXPECT_EQ(ValueAt(*preset, 0.34), "downpour");
  EXPECT_EQ(ValueAt(*preset, 0.999), "easgd");
  const auto messages = ParseDimension("algorithm.x={a: [1, 2], b: 'c,d'},{}");
  ASSERT_TRUE(messages.ok()) << messages.status();
  EXPECT_THAT(messages->choices, ElementsAre("{a: [1, 2], b: 'c,d'}", "{}"));
}

TEST(ParseDimension, RefusesWhatIsNotADimension) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"learning_rate", "takes PATH="}, {"=1..2", "takes PATH="},    {"a=", "takes PATH="},
      {"a=2..1", "empty range"},        {"a=1..inf", "empty range"}, {"a=nan..1", "empty range"},
      {"a=1..1", "empty range"},        {"a=log:0..1", "above 0"},   {"a=log:1", "two numbers"},
      {"a=sync", "one value"},          {"a=b,,c", "empty"},         {"a=b,c,b", "twice"}};
  for (const auto& [text, reason] : wrong)
    EXPECT_THAT(std::string(ParseDimension(text).status().message()), HasSubstr(reason)) << text;
}

TEST(ValueAt, WholeNumbersStayWithinTheRange) {
  SearchDimension batch = {
      .path = "batch_size", .low = 15.5, .high = 64.5, .logarithmic = true, .whole = true};
  EXPECT_EQ(ValueAt(batch, 1e-9), "16");
  EXPECT_EQ(ValueAt(batch, 1 - 1e-9), "64");
}

TEST(Importance, IsThatOfTheCoordinateWhichMatters) {
  std::vector<double> first, second, scores;
  for (int trial = 0; trial < 60; ++trial) {
    const std::vector<double> point = TrialPoint(trial, 2);
    first.push_back(point[0]);
    second.push_back(point[1]);
    scores.push_back(point[0] < 1.0 / 3 ? 1 : 0);
  }
  EXPECT_NEAR(Importance(first, scores, 3).value(), 1, 1e-9);
  EXPECT_LT(Importance(second, scores, 3).value(), 0.05);
  EXPECT_FALSE(Importance(first, std::vector<double>(60, 0.7), 3).has_value());
  EXPECT_FALSE(Importance({0.1, 0.5, 0.9}, {1, 2, 3}, 3).has_value());
}

}  // namespace
}  // namespace catchment
