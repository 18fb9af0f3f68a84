#include "server/control/span.h"

#include <gtest/gtest.h>

#include "server/control/span_pool.h"

namespace catchment {
namespace {

TEST(SpanTest, AppendJoinsWhatGoesOn) {
  Step step;
  Append({0, 3, 5}, &step);
  Append({0, 5, 9}, &step);
  Append({0, 9, 9}, &step);
  Append({1, 9, 10}, &step);
  EXPECT_EQ(step, (Step{{0, 3, 9}, {1, 9, 10}}));
  EXPECT_EQ(NumSamples(step), 7u);
}

TEST(SpanTest, SliceCountsAlongTheSpans) {
  const Step step{{0, 10, 14}, {0, 20, 23}};
  EXPECT_EQ(Slice(step, 0, 7), step);
  EXPECT_EQ(Slice(step, 3, 6), (Step{{0, 13, 14}, {0, 20, 22}}));
  EXPECT_EQ(Slice(step, 4, 5), (Step{{0, 20, 21}}));
  EXPECT_EQ(Slice(step, 2, 2), Step{});
}

TEST(SpanTest, SurvivesTheProto) {
  const v1::Minibatch minibatch = ToMinibatch({{2, 3, 4}, {2, 8, 9}});
  ASSERT_EQ(minibatch.spans_size(), 2);
  EXPECT_EQ(FromProto(minibatch.spans(1)), (Span{2, 8, 9}));
}

TEST(SpanPoolTest, KeepsOrderAndJoinsNeighboursOnBothSides) {
  SpanPool pool;
  pool.Add({1, 0, 5});
  pool.Add({0, 20, 30});
  pool.Add({0, 0, 10});
  pool.Add({0, 10, 20});
  EXPECT_EQ(pool.spans(), (Step{{0, 0, 30}, {1, 0, 5}}));
  EXPECT_EQ(pool.num_samples(), 35u);
}

TEST(SpanPoolTest, DoesNotJoinAcrossEpochs) {
  SpanPool pool;
  pool.Add({0, 5, 10});
  pool.Add({1, 10, 12});
  pool.Add({1, 0, 1});
  EXPECT_EQ(pool.spans(), (Step{{0, 5, 10}, {1, 0, 1}, {1, 10, 12}}));
}

TEST(SpanPoolTest, TakesFromTheFront) {
  SpanPool pool;
  pool.Add({0, 0, 10});
  pool.Add({0, 20, 22});
  EXPECT_EQ(pool.TakeFront(4), (Span{0, 0, 4}));
  EXPECT_EQ(pool.TakeFront(100), (Span{0, 4, 10}));
  EXPECT_EQ(pool.TakeFront(2), (Span{0, 20, 22}));
  EXPECT_TRUE(pool.empty());
  EXPECT_EQ(pool.num_samples(), 0u);
}

TEST(SpanPoolDeathTest, RefusesSamplesThatItHas) {
  SpanPool pool;
  pool.Add({0, 0, 10});
  EXPECT_DEATH(pool.Add({0, 9, 12}), "twice");
  EXPECT_DEATH(pool.Add({0, 4, 5}), "twice");
}

}  // namespace
}  // namespace catchment
