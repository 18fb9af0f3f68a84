#include "server/shard/momentum_log.h"

#include <gtest/gtest.h>

namespace catchment {
namespace {

v1::MomentumState OpenLoop(double tau, float momentum, float factor) {
  v1::MomentumState state;
  state.set_staleness_mean(tau);
  state.set_momentum(momentum);
  state.set_rate_factor(factor);
  return state;
}

TEST(MomentumLog, SaysWhatWasMeasuredAndSet) {
  MomentumLog log(0.9f);
  EXPECT_EQ(log.Line(OpenLoop(3, 0.15f, 2.9155f)),
            "momentum 0.15, learning rate times 2.92: a mean staleness of 3.0 versions adds a momentum of "
            "0.75, and 0.90 are wanted together");
  v1::MomentumState closed;
  closed.set_momentum(-0.2f);
  EXPECT_EQ(log.Line(closed), "momentum -0.20: nothing is measured yet, and 0.90 is wanted");
  closed.set_momentum(0.3f);
  closed.set_total_momentum(0.85);
  EXPECT_EQ(log.Line(closed), "momentum 0.30: a total momentum of 0.85 is measured, and 0.90 is wanted");
}

TEST(MomentumLog, SaysHowABoundAloneChangesTheRate) {
  MomentumLog log(0.9f);
  v1::MomentumState state;
  const auto line = [&](double tau, float factor) {
    state.set_staleness_mean(tau);
    state.set_rate_factor(factor);
    return log.Line(state);
  };
  EXPECT_FALSE(line(1, 0.9f).has_value());
  EXPECT_EQ(line(3, 0.5f), "learning rate times 0.5: a mean staleness of 3.0 versions bounds it");
  EXPECT_FALSE(line(3.5, 0.45f).has_value());
  EXPECT_EQ(line(59, 0.0333f), "learning rate times 0.0333: a mean staleness of 59.0 versions bounds it");
  EXPECT_TRUE(line(1, 1).has_value());
}

TEST(MomentumLog, KeepsQuietWhileLittleChanges) {
  MomentumLog log(0.9f);
  EXPECT_FALSE(log.Line({}).has_value());
  EXPECT_TRUE(log.Line(OpenLoop(1, 0.4f, 1)).has_value());
  EXPECT_FALSE(log.Line(OpenLoop(1, 0.43f, 1)).has_value());
  EXPECT_FALSE(log.Line(OpenLoop(1, 0.37f, 1)).has_value());
  EXPECT_TRUE(log.Line(OpenLoop(1, 0.46f, 1)).has_value());
}

}  // namespace
}  // namespace catchment
