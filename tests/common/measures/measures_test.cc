#include "common/measures/measures.h"

#include <limits>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/live/healthy_status.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

template <typename Reading>
void ExpectDistinct(absl::Span<const Measure<Reading>> measures) {
  std::set<std::string> names;
  const auto is_new = [&names](const std::string& name) { return names.insert(name).second; };
  for (const Measure<Reading>& measure : measures) {
    for (const unsigned in : {kInLines, kInSummary, kInStatus, kOfWorkersOnly})
      EXPECT_TRUE((measure.in & in) == 0 || is_new(absl::StrCat(measure.key, " in ", in))) << measure.key;
    const std::string prometheus = measure.prometheus, tag = measure.tag;
    EXPECT_TRUE(measure.in != 0 || !prometheus.empty()) << measure.key << " is nowhere";
    EXPECT_TRUE(prometheus.empty() || is_new(prometheus)) << prometheus;
    EXPECT_TRUE(prometheus.empty() || *measure.help != '\0') << prometheus;
    EXPECT_TRUE(tag.empty() || is_new("tag " + tag)) << tag;
  }
}

TEST(MeasuresTest, EachIsOnceInAnOutput) {
  ExpectDistinct(JobMeasures());
  ExpectDistinct(WorkerMeasures());
  ExpectDistinct(ShardMeasures());
  ExpectDistinct(PushMeasures());
}

// Python finds the scores of evaluations by this beginning of their keys.
TEST(MeasuresTest, ScoresOfEvaluationsAreThoseWithTest) {
  for (const Measure<JobReading>& measure : JobMeasures()) {
    const bool score = std::string(measure.tag).rfind("test/", 0) == 0;
    if ((measure.in & kInLines) == 0) continue;
    EXPECT_EQ(std::string(measure.key).rfind("test_", 0) == 0, score) << measure.key;
  }
}

TEST(MeasuresTest, AJobThatHasNotBegunIsUnknown) {
  const v1::JobStatus status;
  Json facts;
  AddMeasures(JobMeasures(), kInAll, JobReading(status), &facts);
  for (const char* key : {"train_loss", "test_loss", "best_test_loss", "staleness_p99", "gap_mean",
                          "momentum", "noise_scale", "merged_counts", "plateau_factor", "round_trip_p50_us",
                          "processor_joules", "energy_hosts", "data_checksum", "ended_early", "goodput"})
    EXPECT_TRUE(facts[key].is_null()) << key << ": " << facts[key];
  EXPECT_EQ(facts["samples"], 0);
  EXPECT_EQ(facts["staleness_counts"], Json::array());
}

TEST(MeasuresTest, NumbersThatAreNotFiniteAreUnknown) {
  v1::JobStatus status = HealthyStatus();
  status.set_train_loss(std::numeric_limits<double>::quiet_NaN());
  status.set_test_loss(std::numeric_limits<double>::infinity());
  Json line;
  AddMeasures(JobMeasures(), kInLines, JobReading(status), &line);
  EXPECT_TRUE(line["train_loss"].is_null());
  EXPECT_TRUE(line["test_loss"].is_null());
  EXPECT_EQ(line["train_accuracy"], 0.9451);
  EXPECT_FALSE(line.contains("goodput")) << "of a summary";
}

TEST(MeasuresTest, EnergyAndTheBestEvaluationAreInAllObjects) {
  v1::JobStatus status = HealthyStatus();
  status.set_processor_joules(40);
  status.set_best_evaluation(3);
  status.set_best_test_loss(0.5);
  status.set_repeated_samples(64);
  for (const unsigned in : {kInLines, kInSummary, kInStatus}) {
    Json facts;
    AddMeasures(JobMeasures(), in, JobReading(status), &facts);
    EXPECT_EQ(facts["processor_joules"], 40) << in;
    EXPECT_TRUE(facts["gpu_joules"].is_null()) << in;
    EXPECT_EQ(facts["best_test_loss"], 0.5) << in;
    EXPECT_EQ(facts["repeated_samples"], 64) << in;
    EXPECT_EQ(facts["round_trip_p50_us"], 2261.5) << in;
  }
}

}  // namespace
}  // namespace catchment
