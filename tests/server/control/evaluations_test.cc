#include "server/control/evaluations.h"

#include <gtest/gtest.h>

namespace catchment {
namespace {

v1::EvaluationReport ReportOf(uint64_t evaluation, uint64_t correct = 1) {
  v1::EvaluationReport report;
  report.set_evaluation(evaluation);
  report.set_samples(10);
  report.set_correct(correct);
  return report;
}

TEST(EvaluationsTest, AreDueByEpochs) {
  Evaluations evaluations(0.5, 0);
  evaluations.Observe(0.49);
  EXPECT_EQ(evaluations.Current({}).evaluation(), 0u);
  evaluations.Observe(0.5);
  EXPECT_EQ(evaluations.Current({}).evaluation(), 1u);
  EXPECT_EQ(evaluations.Current({}).evaluation(), 1u) << "asked again";
  evaluations.Report(ReportOf(1));
  EXPECT_EQ(evaluations.Current({}).evaluation(), 0u);
  EXPECT_EQ(evaluations.next(), 2u);
}

TEST(EvaluationsTest, SharesThatAreNotExactAreNotLate) {
  Evaluations evaluations(0.1f, 0);
  evaluations.Observe(0.3);
  EXPECT_EQ(evaluations.Current({}).evaluation(), 3u);
}

TEST(EvaluationsTest, TheNewestTakesThePlaceOfOlderOnes) {
  Evaluations evaluations(1, 0);
  evaluations.Observe(1);
  evaluations.Current({});
  evaluations.Observe(3.2);
  EXPECT_EQ(evaluations.Current({}).evaluation(), 3u);
  evaluations.Report(ReportOf(1, 4));
  EXPECT_EQ(evaluations.last().correct(), 4u) << "a result is a result";
  evaluations.Report(ReportOf(3, 6));
  evaluations.Report(ReportOf(1, 5));
  EXPECT_EQ(evaluations.last().correct(), 6u) << "an older one comes too late";
}

TEST(EvaluationsTest, TheFinalOneIsNotTakenForOneUnderWay) {
  Evaluations evaluations(1, 0);
  evaluations.Observe(1);
  EXPECT_EQ(evaluations.Current({}).evaluation(), 1u);
  evaluations.DemandFinal();
  evaluations.Report(ReportOf(1));
  EXPECT_FALSE(evaluations.final_done());
  const v1::GetEvaluationReply last = evaluations.Current({});
  EXPECT_TRUE(last.final());
  EXPECT_EQ(last.evaluation(), 2u);
  evaluations.Report(ReportOf(2));
  EXPECT_TRUE(evaluations.final_done());
  EXPECT_EQ(evaluations.Current({}).evaluation(), 0u);
}

TEST(EvaluationsTest, GoOnAfterAResume) {
  Evaluations evaluations(1, 3);
  evaluations.Observe(2.5);
  EXPECT_EQ(evaluations.Current({}).evaluation(), 0u);
  evaluations.Observe(3);
  EXPECT_EQ(evaluations.Current({}).evaluation(), 3u);
}

TEST(EvaluationsTest, ReportsOfWhatWasNeverGivenChangeNothing) {
  Evaluations evaluations(1, 0);
  evaluations.Report(ReportOf(7));
  EXPECT_EQ(evaluations.last().samples(), 0u);
  evaluations.Observe(1);
  EXPECT_EQ(evaluations.Current({}).evaluation(), 1u);
}

// A score belongs to the moment when its weights were read, not to the one when it came.
TEST(EvaluationsTest, AScoreIsOfTheMomentWhenItWasAskedFor) {
  Evaluations evaluations(1, 0);
  evaluations.Observe(1);
  const uint64_t number = evaluations.Current({640, 2.5}).evaluation();
  evaluations.Observe(1.5);
  v1::EvaluationReport report;
  report.set_evaluation(number);
  report.set_samples(100);
  evaluations.Report(report);
  EXPECT_EQ(evaluations.last_moment().samples, 640u);
  EXPECT_EQ(evaluations.last_moment().seconds, 2.5);
  EXPECT_EQ(evaluations.Current({960, 3.5}).evaluation(), 0u) << "nothing is due";
  EXPECT_EQ(evaluations.last_moment().samples, 640u);
}

}  // namespace
}  // namespace catchment
