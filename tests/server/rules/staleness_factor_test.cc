#include <gtest/gtest.h>

#include <vector>

#include "server/rules/gradient_compensation.h"

namespace catchment {
namespace {

v1::Compensation Power(float exponent) {
  v1::Compensation compensation;
  compensation.mutable_power()->set_exponent(exponent);
  return compensation;
}

TEST(StalenessFactor, FollowsTheFormulas) {
  v1::Compensation inverse, exponential;
  inverse.mutable_inverse();
  exponential.mutable_exponential()->set_rate(0.5f);
  struct Row {
    uint64_t tau;
    double inverse, power_1, power_half, exponential;
  };
  for (const Row& row : std::vector<Row>{{0, 1, 1, 1, 1},
                                         {1, 1, 0.5, 0.70710678118654752, 0.60653065971263342},
                                         {2, 0.5, 1.0 / 3, 0.57735026918962576, 0.36787944117144233},
                                         {8, 0.125, 1.0 / 9, 1.0 / 3, 0.018315638888734179}}) {
    EXPECT_DOUBLE_EQ(StalenessFactor(inverse, row.tau), row.inverse) << row.tau;
    EXPECT_DOUBLE_EQ(StalenessFactor(Power(1), row.tau), row.power_1) << row.tau;
    EXPECT_DOUBLE_EQ(StalenessFactor(Power(0.5f), row.tau), row.power_half) << row.tau;
    EXPECT_DOUBLE_EQ(StalenessFactor(exponential, row.tau), row.exponential) << row.tau;
  }
}

TEST(StalenessFactor, DelayAdaptiveShrinksOutliersAlone) {
  v1::Compensation compensation;
  compensation.mutable_none();
  compensation.mutable_delay_adaptive()->set_threshold(8);
  for (const uint64_t tau : {0, 1, 7, 8}) EXPECT_EQ(StalenessFactor(compensation, tau), 1) << tau;
  EXPECT_DOUBLE_EQ(StalenessFactor(compensation, 9), 8.0 / 9);
  EXPECT_DOUBLE_EQ(StalenessFactor(compensation, 400), 0.02);
}

TEST(StalenessFactor, DelayAdaptiveMultipliesThatOfTheKind) {
  v1::Compensation compensation = Power(1);
  compensation.mutable_delay_adaptive()->set_threshold(2);
  EXPECT_DOUBLE_EQ(StalenessFactor(compensation, 1), 1.0 / 2);
  EXPECT_DOUBLE_EQ(StalenessFactor(compensation, 4), 1.0 / 5 * 2 / 4);
  v1::Compensation gap;
  gap.mutable_gap_aware();
  gap.mutable_delay_adaptive()->set_threshold(2);
  EXPECT_DOUBLE_EQ(StalenessFactor(gap, 8), 0.25);
}

TEST(StalenessFactor, OtherKindsHaveNone) {
  v1::Compensation none, gap;
  none.mutable_none();
  gap.mutable_gap_aware();
  EXPECT_EQ(StalenessFactor(none, 9), 1);
  EXPECT_EQ(StalenessFactor(gap, 9), 1);
}

}  // namespace
}  // namespace catchment
