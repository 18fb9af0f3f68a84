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

TEST(BestProbe, TheMostAccurateAndOfEqualOnesTheOneWithTheLeastLoss) {
  EXPECT_EQ(BestProbe({Probe(0.8, 0.1), Probe(0.9, 0.4), Probe(0.9, 0.3), Probe(0.7, 0.2)}), 2);
}

TEST(BestProbe, ThoseThatFailedAreNone) {
  RunResult failed = Probe(0.9, 0.1);
  failed.done = false;
  EXPECT_EQ(BestProbe({failed, Probe(0.2, 2)}), 1);
  EXPECT_EQ(BestProbe({failed}), -1);
}

TEST(BestProbe, OfRealTargetsTheOneWithTheLeastLoss) {
  std::vector<RunResult> probes = {Probe(0, 0.4), Probe(0, 0.3), Probe(0, 0.5)};
  for (RunResult& probe : probes) probe.accuracy.reset();
  EXPECT_EQ(BestProbe(probes), 1);
}

}  // namespace
}  // namespace catchment
