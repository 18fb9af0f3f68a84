#include "common/base/patience.h"

#include <gtest/gtest.h>

#include <limits>

namespace catchment {
namespace {

constexpr double kCall = 10;    // the timeout of a call
constexpr double kPause = 0.5;  // between two calls

class PatienceTest : public testing::Test {
 protected:
  // Makes a call of `seconds` that fails, and then a pause of `pause`. Returns true if the peer is given up.
  bool Fails(double seconds, double pause = kPause, double limit = kCall) {
    patience_.Begin(now_, limit);
    now_ += seconds;
    const bool over = patience_.Fail(now_);
    patience_.Begin(now_, kPause);
    now_ += pause;
    return over;
  }
  // Returns the seconds until the peer is given up by calls that fail after `seconds` each.
  double GivesUpAfter(double seconds) {
    const double begin = now_;
    while (!Fails(seconds)) {
    }
    return now_ - begin;
  }

  Patience patience_{60};
  double now_ = 1000;
};

TEST_F(PatienceTest, EndsAfterTheSecondsOfCallsAndPauses) {
  EXPECT_NEAR(GivesUpAfter(0), 60, 1);
  patience_.Succeed();
  EXPECT_NEAR(GivesUpAfter(kCall), 60, kCall + 1);
}

TEST_F(PatienceTest, BeginsAnewAfterAnAnswer) {
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(Fails(kCall));
    EXPECT_FALSE(Fails(kCall));
    patience_.Succeed();
  }
}

TEST_F(PatienceTest, TimeInWhichTheProcessDidNotRunDoesNotCount) {
  EXPECT_FALSE(Fails(/*seconds=*/3600)) << "in a call";
  EXPECT_FALSE(Fails(0, /*pause=*/3600)) << "in a pause";
  EXPECT_FALSE(Fails(0));
  EXPECT_NEAR(GivesUpAfter(0), 60 - kCall - 2 * kPause, 1);
}

TEST_F(PatienceTest, OneCallWithoutATimeoutDoesNotSpendIt) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(Fails(3600, kPause, kNone));
  EXPECT_FALSE(Fails(0));
  EXPECT_TRUE(Fails(3600, kPause, kNone));
}

TEST_F(PatienceTest, AllowsASecondAttempt) {
  patience_.ShortenTo(0);
  EXPECT_FALSE(Fails(0));
  EXPECT_TRUE(Fails(0));
}

TEST_F(PatienceTest, IsOnlyShortened) {
  patience_.ShortenTo(70);
  EXPECT_EQ(patience_.seconds(), 60);
  patience_.ShortenTo(20);
  EXPECT_NEAR(GivesUpAfter(0), 20, 1);
}

}  // namespace
}  // namespace catchment
