#include "cli/simulate/recorded_run.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using testing::HasSubstr;

class RecordedRunTest : public testing::Test {
 protected:
  RecordedRunTest() : directory_(testing::TempDir() + "/recorded_run") {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ + "/" + name) << text;
  }
  void WriteJob(const std::string& preset) const {
    Write("job.textproto",
          absl::StrCat("name: 'run' model { synthetic { parameters: 1000 } } data { synthetic { samples: "
                       "10000 } } batch_size: 10 workers: 2 algorithm { preset: '",
                       preset, "' }"));
  }
  void WriteSummary(const std::string& fields) const {
    Write("summary.json", absl::StrCat("{\"phase\": \"DONE\"", fields, "}"));
  }

  // Writes a run of intervals of 5 seconds, in which workers make as many steps as fit. In every other
  // interval all steps take `load` times as long.
  // `start` is in addition in the first step of each worker.
  void WriteRun(const Distribution& truth, int workers, double load, const Distribution& start = {}) const {
    WriteJob("downpour");
    Random random(1);
    std::string metrics;
    double computed = 0, samples = 0;
    for (int i = 1; i <= 500; ++i) {
      std::string rates;
      for (int worker = 0; worker < workers; ++worker) {
        double seconds = i == 1 && start.mean > 0 ? start.Sample(&random) : 0;
        int steps = 0;
        for (; seconds < 5; ++steps) seconds += (i % 2 == 0 ? load : 1) * truth.Sample(&random);
        computed += seconds;
        samples += 10.0 * steps;
        absl::StrAppend(&rates, worker > 0 ? ", " : "", "{\"worker\": ", worker,
                        ", \"samples_per_second\": ", 10 * steps / seconds, ", \"compute_share\": 1}");
      }
      absl::StrAppend(&metrics, "{\"wall_seconds\": ", 5 * i, ", \"worker_rates\": [", rates, "]}\n");
    }
    WriteSummary(absl::StrCat(", \"samples\": ", samples, ", \"compute_seconds\": ", computed));
    Write("metrics.jsonl", metrics);
  }

  const std::string directory_;
};

TEST_F(RecordedRunTest, StepTimeOfAResumedRunIsThatSinceItsLastStart) {
  WriteJob("downpour");
  WriteSummary(R"(, "samples": 16000, "computed_samples": 4000, "compute_seconds": 48)");
  Write("metrics.jsonl", "");
  const absl::StatusOr<Distribution> step = RecordedStep(directory_);
  ASSERT_TRUE(step.ok()) << step.status();
  WriteSummary(R"(, "samples": 4000, "compute_seconds": 48)");
  EXPECT_DOUBLE_EQ(step->mean, RecordedStep(directory_)->mean) << "the whole run at once";
}

TEST_F(RecordedRunTest, TakesTheMeanOfASteadyRun) {
  WriteJob("downpour");
  WriteSummary(R"(, "samples": 4000, "compute_seconds": 48)");
  std::string metrics;
  for (int i = 1; i <= 10; ++i) {
    absl::StrAppend(&metrics, "{\"wall_seconds\": ", i,
                    R"(, "worker_rates": [{"worker": 0, "samples_per_second": 80, "compute_share": 0.96}]})",
                    "\n");
  }
  Write("metrics.jsonl", metrics);
  const absl::StatusOr<Distribution> step = RecordedStep(directory_);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->kind, Distribution::kConstant);
  EXPECT_DOUBLE_EQ(step->mean, 0.12);
}

TEST_F(RecordedRunTest, TakesTheSpreadFromTheIntervals) {
  const Distribution truth = {.kind = Distribution::kLogNormal, .mean = 0.1, .shape = 0.4};
  WriteRun(truth, /*workers=*/1, /*load=*/1);
  const absl::StatusOr<Distribution> step = RecordedStep(directory_);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->kind, Distribution::kLogNormal);
  EXPECT_NEAR(step->mean, truth.mean, 0.01);
  EXPECT_NEAR(step->shape, truth.shape, 0.06);
}

TEST_F(RecordedRunTest, ALoadThatAllWorkersShareIsNotPartOfTheSpread) {
  const Distribution truth = {.kind = Distribution::kLogNormal, .mean = 0.1, .shape = 0.4};
  WriteRun(truth, /*workers=*/3, /*load=*/1.2);
  const absl::StatusOr<Distribution> step = RecordedStep(directory_);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_NEAR(step->shape, truth.shape, 0.06);
}

TEST_F(RecordedRunTest, TakesTheSpreadOfFirstSteps) {
  const Distribution step = {.kind = Distribution::kLogNormal, .mean = 0.1, .shape = 0.2};
  constexpr int kWorkers = 40;
  WriteRun(step, kWorkers, /*load=*/1, {.kind = Distribution::kExponential, .mean = 1});
  const absl::StatusOr<std::optional<Distribution>> start = RecordedStart(directory_);
  ASSERT_TRUE(start.ok()) << start.status();
  ASSERT_TRUE(start->has_value());
  EXPECT_EQ((*start)->kind, Distribution::kExponential);
  EXPECT_NEAR((*start)->mean, 1, 0.4);
  // One that is the same for all workers, such as the compiler's, does not set them apart.
  WriteRun({.mean = 0.1}, kWorkers, /*load=*/1, {.mean = 3});
  const absl::StatusOr<std::optional<Distribution>> together = RecordedStart(directory_);
  ASSERT_TRUE(together.ok()) << together.status();
  EXPECT_LT(together->value_or(Distribution{}).mean, 1e-6);
  WriteRun(step, 1, /*load=*/1, {.mean = 3});
  EXPECT_FALSE(RecordedStart(directory_)->has_value()) << "there is nobody to differ from";
}

TEST_F(RecordedRunTest, TakesHalfOfTheRoundTripAsLatency) {
  WriteJob("downpour");
  WriteSummary(R"(, "round_trip_p50_us": 800)");
  const absl::StatusOr<NetworkModel> network = RecordedNetwork(directory_);
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_DOUBLE_EQ(network->latency, 400e-6);
  EXPECT_EQ(network->bytes_per_second, 0);
}

TEST_F(RecordedRunTest, NamesWhatARunLacks) {
  EXPECT_THAT(std::string(RecordedStep(directory_).status().message()), HasSubstr("summary.json"));
  WriteSummary("");
  EXPECT_THAT(std::string(RecordedStep(directory_).status().message()), HasSubstr("job.textproto"));
  WriteJob("downpour");
  EXPECT_THAT(std::string(RecordedStep(directory_).status().message()), HasSubstr("compute_seconds"));
  WriteSummary(R"(, "compute_seconds": 48)");
  EXPECT_THAT(std::string(RecordedStep(directory_).status().message()), HasSubstr("samples"));
  WriteSummary(R"(, "samples": 4000, "compute_seconds": 48)");
  EXPECT_THAT(std::string(RecordedStep(directory_).status().message()), HasSubstr("metrics.jsonl"));
  EXPECT_THAT(std::string(RecordedNetwork(directory_).status().message()), HasSubstr("round_trip_p50_us"));
  WriteJob("sync");
  EXPECT_THAT(std::string(RecordedNetwork(directory_).status().message()), HasSubstr("--network"));
}

}  // namespace
}  // namespace catchment
