#include "cli/compare/compare_directory.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

RunResult Probe(double accuracy, double loss) {
  RunResult probe;
  probe.done = true;
  probe.accuracy = accuracy;
  probe.loss = loss;
  return probe;
}

TEST(ScoreOf, OrdersByAccuracyAndOfEqualOnesByLoss) {
  EXPECT_GT(ScoreOf(Probe(0.9, 0.4)), ScoreOf(Probe(0.8, 0.1)));
  EXPECT_GT(ScoreOf(Probe(0.9, 0.3)), ScoreOf(Probe(0.9, 0.4)));
}

TEST(ScoreOf, IsNothingForARunThatIsNotDone) {
  RunResult failed = Probe(0.9, 0.1);
  failed.done = false;
  EXPECT_FALSE(ScoreOf(failed).has_value());
}

TEST(ScoreOf, OfRealTargetsIsTheLoss) {
  RunResult low = Probe(0, 0.3), high = Probe(0, 0.4);
  low.accuracy.reset();
  high.accuracy.reset();
  EXPECT_GT(ScoreOf(low), ScoreOf(high));
}

TEST(ReportedCommand, HasNoDirectoriesOfThisMachine) {
  EXPECT_EQ(ReportedCommand("catchment compare", {"/home/me/job.textproto", "--workers=1,2",
                                                  "--out=/tmp/out/", "--out", "/tmp/a"}),
            "catchment compare job.textproto --workers=1,2 --out=out --out a");
  EXPECT_EQ(ReportedCommand("catchment tune", {"examples/job.textproto", "--set=data={a: 1}", "--out=a/b"}),
            "catchment tune examples/job.textproto '--set=data={a: 1}' --out=a/b");
}

}  // namespace
}  // namespace catchment
