#include "tests/benchmarks/scaling_case.h"

#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Described(const ScalingChoice& choice) {
  std::vector<std::string> described;
  for (const ScalingCase& c : MakeScalingCases(choice)) described.push_back(c.Describe());
  return described;
}

TEST(MakeScalingCases, WithoutAChoiceAreThreeSizesThreePresetsAndUpToSixtyWorkers) {
  const std::vector<std::string> described = Described({});
  EXPECT_EQ(described.size(), 3u * 3 * 7);
  EXPECT_EQ(described.front(), "sync, 14,000 parameters, 100 ms, 1 worker");
  EXPECT_EQ(described.back(), "easgd, 11,000,000 parameters, 5000 ms, 60 workers");
}

TEST(MakeScalingCases, EachGroupBeginsWithOneWorkerAskedForOrNot) {
  ScalingChoice choice{{"downpour"}, {1'200'000, 14'000}, {60, 2, 2}};
  EXPECT_THAT(Described(choice), ElementsAre("downpour, 1,200,000 parameters, 1000 ms, 1 worker",
                                             "downpour, 1,200,000 parameters, 1000 ms, 2 workers",
                                             "downpour, 1,200,000 parameters, 1000 ms, 60 workers",
                                             "downpour, 14,000 parameters, 100 ms, 1 worker",
                                             "downpour, 14,000 parameters, 100 ms, 2 workers",
                                             "downpour, 14,000 parameters, 100 ms, 60 workers"));
  choice = {{"downpour"}, {14'000}, {1}, 7};
  EXPECT_THAT(Described(choice), ElementsAre("downpour, 14,000 parameters, 7 ms, 1 worker"));
}

TEST(ScalingJobText, IsASoundJobThatNeverEnds) {
  for (const ScalingCase& c : MakeScalingCases({})) {
    v1::Job job;
    ASSERT_TRUE(ParseText(ScalingJobText(c), c.Describe(), "", &job).ok()) << ScalingJobText(c);
    const auto filled = FillDefaultsAndValidate(job);
    ASSERT_TRUE(filled.ok()) << c.Describe() << ": " << filled.status();
    EXPECT_EQ(filled->model().synthetic().parameters(), static_cast<uint64_t>(c.parameters));
    EXPECT_EQ(filled->model().synthetic().step_ms(), c.step_ms);
    EXPECT_EQ(filled->workers(), static_cast<uint32_t>(c.workers));
    EXPECT_EQ(filled->algorithm().preset(), c.preset);
    EXPECT_EQ(filled->algorithm().contribution().elastic().communication_period(),
              c.preset == "easgd" ? 1u : 0u);
  }
}

TEST(SynchronousBound, IsOneWhereTransfersHideBehindTheStep) {
  EXPECT_DOUBLE_EQ(SynchronousBound({"sync", 1000000, 1000, 1}, 4e9), 1);
  // 60 workers move 0.48 GB for an update: 0.12 s, of which an eighth cannot hide; of one worker 0.00025 s.
  EXPECT_NEAR(SynchronousBound({"sync", 1000000, 1000, 60}, 4e9), 1.00025 / 1.015, 1e-9);
}

TEST(SynchronousBound, OfAModelOfTwoLayersHalfCannotHide) {
  // 60 workers move 4.8 MB for an update: 0.0012 s; one 0.00002 s.
  EXPECT_NEAR(SynchronousBound({"sync", 10000, 100, 60}, 4e9), 0.10001 / 0.1006, 1e-9);
}

TEST(SynchronousBound, IsTheNetworksWhereStepsAreShort) {
  // 0.12 s for each update, whatever a step takes.
  EXPECT_NEAR(SynchronousBound({"sync", 1000000, 10, 60}, 4e9), 0.01025 / 0.12, 1e-9);
}

}  // namespace
}  // namespace catchment
