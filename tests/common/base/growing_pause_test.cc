#include "common/base/growing_pause.h"

#include <gtest/gtest.h>

namespace catchment {
namespace {

TEST(GrowingPauseTest, DoublesUpToFiveSeconds) {
  GrowingPause pause;
  for (double expected : {0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0}) EXPECT_DOUBLE_EQ(pause.Next(), expected);
}

TEST(GrowingPauseTest, BeginsAnewAfterASuccess) {
  GrowingPause pause;
  for (int i = 0; i < 4; ++i) pause.Next();
  pause.Reset();
  EXPECT_DOUBLE_EQ(pause.Next(), 0.1);
  EXPECT_DOUBLE_EQ(pause.Next(), 0.2);
}

// A master that was unreachable for long answers that a server has not registered yet.
TEST(GrowingPauseTest, BeginsAnewWithAnotherReason) {
  GrowingPause pause;
  for (double expected : {0.1, 0.2, 0.4, 0.8}) EXPECT_DOUBLE_EQ(pause.Next("connection refused"), expected);
  for (double expected : {0.1, 0.2}) EXPECT_DOUBLE_EQ(pause.Next("waiting for server 1"), expected);
  EXPECT_DOUBLE_EQ(pause.Next("connection refused"), 0.1);
}

}  // namespace
}  // namespace catchment
