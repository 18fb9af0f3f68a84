#include "cli/report/findings.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/report/made_comparison.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ChooseTarget, HalfOfTheAlgorithmsReachItInEveryRun) {
  // One of two runs must reach the target: the worst run of sync reaches 98.01 %.
  EXPECT_NEAR(ChooseTarget(MadeComparison()), 0.98, 1e-9);
  Comparison comparison = MadeComparison();
  comparison.algorithms.push_back(comparison.algorithms[1]);
  comparison.algorithms.back().name = "easgd";
  // Two of three runs must reach the target: the worst run of downpour reaches 96.01 %.
  EXPECT_NEAR(ChooseTarget(comparison), 0.96, 1e-9);
  comparison.wanted_target = 0.5;
  EXPECT_EQ(ChooseTarget(comparison), 0.5);
}

TEST(ChooseTarget, RunsThatFailedCountForNothing) {
  Comparison comparison = MadeComparison();
  for (RunResult& run : comparison.runs) run.done = run.algorithm != "sync";
  EXPECT_NEAR(ChooseTarget(comparison), 0.96, 1e-9);
}

Comparison To96() {
  Comparison comparison = MadeComparison();
  comparison.wanted_target = 0.96;
  return comparison;
}

TEST(Find, TheFirstWithTheMostWorkersAndItsLead) {
  const Findings findings = Find(To96());
  const auto standings = findings.With(4);
  ASSERT_EQ(standings.size(), 2u);
  EXPECT_EQ(standings[0]->algorithm, "downpour");
  EXPECT_TRUE(standings[0]->reached());
  ASSERT_TRUE(findings.lead.has_value());
  // sync: 8.1, 8.2 and 8.3 seconds to 98 %, downpour 4.1, 4.2 and 4.3 to 96 %.
  EXPECT_NEAR(findings.lead->value, 8.2 * 0.96 / 0.98 / 4.2, 0.01);
  EXPECT_TRUE(findings.lead->beyond_noise());
  EXPECT_TRUE(findings.lead_over_synchronous.has_value());
}

TEST(Find, WhoDidNotReachItComesAfterThoseWhoDid) {
  Comparison comparison = MadeComparison();
  comparison.wanted_target = 0.97;
  // On average better than sync at the end, but the third run is not done.
  for (RunResult& run : comparison.runs) {
    if (run.algorithm == "downpour")
      run = MadeRun("downpour", run.workers, run.seed, 4, run.seed == 3 ? 0.969 : 0.99);
  }
  const Findings findings = Find(comparison);
  EXPECT_EQ(findings.With(4)[0]->algorithm, "sync");
  EXPECT_FALSE(findings.With(4)[1]->reached());
  EXPECT_FALSE(findings.lead.has_value());
  EXPECT_THAT(Answer(comparison, findings), AllOf(HasSubstr("sync reached 97.0 % test accuracy first"),
                                                  HasSubstr("Not in every run: downpour (2 of 3")));
}

TEST(Find, AnswerSaysWhetherAllRunsWithTheMostWorkersDiverged) {
  Comparison comparison = MadeComparison();
  for (RunResult& run : comparison.runs) {
    run.done = run.workers == 1;
    run.diverged = !run.done;
  }
  EXPECT_THAT(Answer(comparison, Find(comparison)),
              HasSubstr("With 4 workers, worker 1 slowed 4 times, training diverged in every run"));
  for (RunResult& run : comparison.runs) run.diverged = run.diverged && run.algorithm == "sync";
  EXPECT_EQ(Answer(comparison, Find(comparison)), "No run with the most workers has finished.");
}

TEST(Find, AnswerSaysWhatWasSimulated) {
  Comparison comparison = MadeComparison();
  comparison.wanted_target = 0.9;
  const auto answer = [&] { return Answer(comparison, Find(comparison)); };
  EXPECT_THAT(answer(),
              AllOf(StartsWith("With 4 workers, "), HasSubstr("reached 90.0 % test accuracy first")));
  comparison.simulated = "step constant:50ms";
  EXPECT_THAT(answer(), StartsWith("Simulated, with 4 workers, "));
  comparison.simulated = "step constant:50ms, gradient a quadratic of condition 10";
  EXPECT_THAT(answer(), AllOf(StartsWith("Simulated on a quadratic function, with 4 workers, "),
                              HasSubstr("reached a 90.0 % lower loss first")));
}

TEST(Answer, BeginsWithTheLearningRatesThatWereNotTuned) {
  Comparison comparison = To96();
  comparison.untuned = "Learning rates were not tuned.";
  EXPECT_THAT(Answer(comparison, Find(comparison)),
              StartsWith("Learning rates were not tuned. With 4 workers, "));
  // Without scores they make no difference.
  for (RunResult& run : comparison.runs) {
    run.scores.clear();
    run.accuracy.reset();
    run.loss.reset();
  }
  EXPECT_THAT(Answer(comparison, Find(comparison)), StartsWith("With 4 workers, "));
}

TEST(Find, DuelsSayWhereWaitingWins) {
  const Findings findings = Find(To96());
  for (const Duel& duel : findings.duels) {
    const bool time = duel.measure == Duel::kSecondsToTarget;
    const bool errors = duel.measure == Duel::kFinalErrors;
    EXPECT_TRUE(duel.workers == 4 || !duel.ratio.beyond_noise()) << duel.measure;
    EXPECT_EQ(duel.asynchronous_wins(), duel.workers == 4 && time) << duel.measure;
    EXPECT_TRUE(duel.synchronous_wins() || duel.workers == 1 || !errors);
  }
  EXPECT_EQ(findings.duels.size(), 6u);
  EXPECT_THAT(WhereSynchronousWins(findings),
              AllOf(HasSubstr("with 4 workers, sync ended with fewer errors than downpour"),
                    HasSubstr("with 4 workers, downpour reached the target sooner than sync"),
                    Not(HasSubstr("with 1 worker"))));
}

TEST(Answer, SaysWhoByHowMuchAndWhetherThatIsNoise) {
  const Comparison comparison = To96();
  EXPECT_THAT(Answer(comparison, Find(comparison)),
              AllOf(HasSubstr("With 4 workers, worker 1 slowed 4 times, downpour reached 96.0 %"),
                    HasSubstr("over 3 seeds"), HasSubstr(", 1.91 times as long in the geometric mean"),
                    HasSubstr(": statistically significant (95 % confidence interval 1.86 to 1.97)")));
}

TEST(DescribeStragglers, NamesWorkersThatAreSlowedAlikeTogether) {
  Comparison comparison;
  comparison.stragglers = {"0:10x", "1:40x", "2:10x", "3:10x", "1%steps:5x"};
  EXPECT_EQ(DescribeStragglers(comparison),
            "1 % of the steps slowed 5 times, workers 0, 2 and 3 slowed 10 times, worker 1 slowed 40 times");
}

// One algorithm that waits and nine equal ones that do not: the best of the nine seems to be better in 1 of
// 10 comparisons unless the level is corrected.
TEST(Find, TheBestOfManyEqualAlgorithmsDifferByNoMoreThanNoise) {
  int beyond_noise = 0;
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 400; ++trial) {
    Comparison comparison = MadeComparison();
    comparison.workers = {4};
    comparison.wanted_target = 0.96;
    comparison.runs.clear();
    comparison.algorithms.clear();
    for (int i = 0; i < 10; ++i) {
      AlgorithmFacts facts = MadeComparison().algorithms[i == 0 ? 0 : 1];
      facts.name += std::to_string(i);
      comparison.algorithms.push_back(facts);
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        const double noise = static_cast<double>(random() % 1000) / 1000;
        comparison.runs.push_back(MadeRun(facts.name, 4, seed, 10 + noise, 0.98));
      }
    }
    const Findings findings = Find(comparison);
    for (const Duel& duel : findings.duels) {
      if (duel.measure == Duel::kSecondsToTarget) beyond_noise += duel.ratio.beyond_noise();
    }
    ASSERT_TRUE(findings.lead.has_value());
    EXPECT_EQ(findings.lead->pairs, 45);
  }
  EXPECT_LE(beyond_noise, 20) << "more than 1 in 20";
}

TEST(Answer, OneSeedIsNotTakenForMoreThanItIs) {
  Comparison comparison = To96();
  comparison.runs.resize(4);
  EXPECT_THAT(Answer(comparison, Find(comparison)), HasSubstr("one seed cannot show"));
  EXPECT_THAT(WhereSynchronousWins(Find(comparison)), HasSubstr("One seed cannot show"));
}

TEST(Answer, CloseRunsAreCalledNoise) {
  Comparison comparison = To96();
  comparison.workers = {1};
  EXPECT_THAT(Answer(comparison, Find(comparison)), HasSubstr("not statistically significant"));
}

TEST(Answer, WithoutScoresItIsAboutThroughput) {
  Comparison comparison = MadeComparison();
  for (RunResult& run : comparison.runs) {
    run.scores.clear();
    run.accuracy.reset();
    run.loss.reset();
  }
  EXPECT_THAT(Answer(comparison, Find(comparison)), HasSubstr("downpour trained the most samples a second"));
}

TEST(Answer, OfRealTargetsItIsAboutTheLoss) {
  Comparison comparison = MadeComparison();
  comparison.wanted_target = 0.9;
  for (RunResult& run : comparison.runs) {
    run.scores.clear();
    run.accuracy.reset();
    run.loss = run.algorithm == "sync" ? 0.25 : 0.5;
  }
  const Findings findings = Find(comparison);
  EXPECT_EQ(findings.target, 0);
  EXPECT_THAT(Answer(comparison, findings), HasSubstr("sync had the lowest test loss at the end, 0.25"));
}

}  // namespace
}  // namespace catchment
