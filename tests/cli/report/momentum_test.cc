#include "cli/report/findings.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

AlgorithmFacts Facts() {
  AlgorithmFacts facts;
  facts.implicit = true;
  return facts;
}

// Four workers in random order: mean staleness 3, and 1 - 1/4 of momentum.
TEST(MomentumOf, StalenessAddsItsOwn) {
  const Momentum momentum = MomentumOf(Facts(), 0.9, 3);
  EXPECT_DOUBLE_EQ(*momentum.given, 0.9);
  EXPECT_DOUBLE_EQ(*momentum.implicit, 0.75);
  EXPECT_DOUBLE_EQ(*MomentumOf(Facts(), 0.9, 0).implicit, 0);
}

TEST(MomentumOf, TheOpenLoopTakesItOffDownToItsLeast) {
  AlgorithmFacts facts = Facts();
  facts.open_loop_minimum = 0;
  EXPECT_NEAR(*MomentumOf(facts, 0.9, 1).given, 0.4, 1e-12);
  EXPECT_NEAR(*MomentumOf(facts, 0.9, 99).given, 0, 1e-12);
}

TEST(MomentumOf, UnknownMomentumIsAbsent) {
  AlgorithmFacts facts = Facts();
  facts.implicit = false;
  facts.closed_loop = true;
  EXPECT_FALSE(MomentumOf(facts, 0.9, 1).given.has_value());
  EXPECT_FALSE(MomentumOf(facts, 0.9, 1).implicit.has_value());
}

}  // namespace
}  // namespace catchment
