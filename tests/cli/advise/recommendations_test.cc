#include "cli/advise/recommendations.h"

#include <glog/logging.h>
#include <google/protobuf/text_format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/healthy_status.h"

namespace catchment {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

v1::Job MakeJob(const std::string& preset, int workers, const std::string& more = "") {
  v1::Job job;
  CHECK(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat(
          "name: 'digits' model { synthetic { parameters: 1000000 step_ms: 100 } } data { synthetic {} } "
          "batch_size: 32 samples: 100000 algorithm { preset: '",
          preset, "' } workers: ", workers, " ", more),
      &job));
  const absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(job);
  CHECK(complete.ok()) << complete.status();
  return *complete;
}

Evidence MakeEvidence(const v1::Job& job) {
  const absl::StatusOr<Evidence> evidence = EvidenceOfJob(job, 1);
  CHECK(evidence.ok()) << evidence.status();
  return *evidence;
}

std::vector<std::string> PresetsOf(const Recommendations& recommendations) {
  std::vector<std::string> names;
  for (const PresetAdvice& preset : recommendations.presets) names.push_back(preset.name);
  return names;
}

// ----------------------------------------------------------------------------------------- momentum

constexpr char kUsual[] = "optimizer { momentum: 0.9 }";

TEST(MomentumTest, IsLoweredByWhatAsynchronyAdds) {
  const MomentumAdvice advice = AdviseMomentum(MakeJob("downpour", 4, kUsual), {});
  EXPECT_NEAR(advice.staleness, 3, 1e-9);
  EXPECT_NEAR(advice.added, 1 - 1.0 / 4, 1e-9);
  ASSERT_TRUE(advice.take.has_value());
  EXPECT_NEAR(*advice.take, 0.9 - 0.75, 1e-6);
  ASSERT_TRUE(advice.rate_factor.has_value());
  EXPECT_NEAR(*advice.rate_factor, std::pow(0.85 / 0.1, 0.7), 1e-4);
}

TEST(MomentumTest, TakesTheMeasuredStaleness) {
  const MomentumAdvice advice = AdviseMomentum(MakeJob("downpour", 4, kUsual), 1.0);
  EXPECT_TRUE(advice.measured);
  EXPECT_NEAR(advice.take.value_or(-1), 0.4, 1e-6);
}

TEST(MomentumTest, ThePresetsIsKept) {
  for (const int workers : {2, 4, 8, 60})
    EXPECT_FALSE(AdviseMomentum(MakeJob("downpour", workers), {}).take.has_value()) << workers;
  EXPECT_TRUE(AdviseMomentum(MakeJob("downpour", 8, "optimizer { momentum: 0.8 }"), {}).take.has_value());
}

TEST(PresetsTest, LearningRatesAreForTheNumberOfWorkers) {
  Evidence evidence =
      MakeEvidence(MakeJob("sync", 32, "faults { stragglers { worker: 3 slowdown_factor: 5 } }"));
  const Recommendations recommendations = Recommend(evidence);
  EXPECT_THAT(PresetsOf(recommendations), Contains("dana"));
  for (const PresetAdvice& preset : recommendations.presets) {
    EXPECT_THAT(preset.reason, Not(HasSubstr("learning_rate"))) << "a preset knows its own";
  }
}

TEST(MomentumTest, IsNotBelowZero) {
  const MomentumAdvice advice = AdviseMomentum(MakeJob("downpour", 20, kUsual), {});
  EXPECT_EQ(advice.take.value_or(-1), 0);
  EXPECT_THAT(advice.rule, HasSubstr("fewer workers"));
}

TEST(MomentumTest, IsKeptWhereNothingIsStaleOrTheModelDoesNotApply) {
  for (const char* preset : {"sync", "sync_backup", "staleness_aware", "easgd", "dana", "local_sgd"}) {
    const MomentumAdvice advice = AdviseMomentum(MakeJob(preset, 4), {});
    EXPECT_FALSE(advice.take.has_value()) << preset;
    EXPECT_THAT(advice.rule, Not(IsEmpty())) << preset;
  }
  const MomentumAdvice alone = AdviseMomentum(MakeJob("downpour", 1), {});
  EXPECT_FALSE(alone.take.has_value());
  const MomentumAdvice adam = AdviseMomentum(MakeJob("downpour", 4, "optimizer { kind: ADAM }"), {});
  EXPECT_FALSE(adam.take.has_value());
}

// ----------------------------------------------------------------------------------------- presets

TEST(PresetsTest, KeepsSyncWhereNobodyWaits) {
  const Recommendations recommendations = Recommend(MakeEvidence(MakeJob("downpour", 4)));
  EXPECT_THAT(PresetsOf(recommendations), ElementsAre("sync"));
}

TEST(PresetsTest, DoesNotWaitForASlowWorker) {
  Evidence evidence =
      MakeEvidence(MakeJob("sync", 8, "faults { stragglers { worker: 3 slowdown_factor: 5 } }"));
  ASSERT_EQ(evidence.slow.size(), 1u);
  const Recommendations recommendations = Recommend(evidence);
  EXPECT_EQ(recommendations.presets.front().name, "sync");
  EXPECT_LT(recommendations.presets.front().efficiency, 0.3);
  EXPECT_THAT(PresetsOf(recommendations), Contains("staleness_aware"));
  EXPECT_THAT(PresetsOf(recommendations), Contains("sync_backup"));
  EXPECT_THAT(PresetsOf(recommendations), Not(Contains("easgd"))) << "the network is fast";
  ASSERT_TRUE(recommendations.scaling.has_value());
  EXPECT_EQ(recommendations.scaling->job.limit, Limit::kOtherWorkers);
  EXPECT_FALSE(recommendations.scaling->servers.has_value()) << "servers do not make a worker faster";
}

TEST(PresetsTest, ExchangesSeldomOnASlowNetwork) {
  Evidence evidence = MakeEvidence(MakeJob("sync", 4));
  evidence.network = {.bytes_per_second = 1.25e7, .latency = 1e-3};
  const Recommendations recommendations = Recommend(evidence);
  EXPECT_THAT(PresetsOf(recommendations), Contains("local_sgd"));
  EXPECT_THAT(PresetsOf(recommendations), Contains("easgd"));
}

TEST(PresetsTest, AreNotComparedWithASingleWorker) {
  EXPECT_THAT(Recommend(MakeEvidence(MakeJob("sync", 1))).presets, IsEmpty());
}

// ----------------------------------------------------------------------------------------- servers

TEST(ScalingTest, MoreServersCarryMoreWorkers) {
  Evidence evidence = MakeEvidence(MakeJob("downpour", 64));
  evidence.network = {.bytes_per_second = 1.25e9, .latency = 50e-6};
  const Recommendations recommendations = Recommend(evidence);
  ASSERT_TRUE(recommendations.scaling.has_value());
  const std::vector<ServerRow>& rows = recommendations.scaling->rows;
  ASSERT_GT(rows.size(), 2u);
  for (size_t i = 1; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].servers, 2 * rows[i - 1].servers);
    EXPECT_GT(rows[i].most_workers, rows[i - 1].most_workers);
  }
  ASSERT_TRUE(recommendations.scaling->servers.has_value());
  for (const ServerRow& row : rows) {
    EXPECT_EQ(row.job.efficiency >= kEfficiency, row.servers >= *recommendations.scaling->servers);
    EXPECT_EQ(row.most_workers >= 64, row.job.efficiency >= kEfficiency);
  }
}

TEST(ScalingTest, WithoutAStepSaysHowLongItMustBe) {
  Evidence evidence = MakeEvidence(MakeJob("downpour", 8));
  evidence.step.reset();
  const Recommendations recommendations = Recommend(evidence);
  EXPECT_FALSE(recommendations.scaling.has_value());
  ASSERT_TRUE(recommendations.shortest_step.has_value());
  evidence.step = Distribution{.mean = *recommendations.shortest_step};
  EXPECT_NEAR(Recommend(evidence).scaling->job.efficiency, kEfficiency, 1e-6);
  EXPECT_THAT(AdviceText(evidence, recommendations), HasSubstr("--step"));
}

TEST(ScalingTest, CountsTheSamplesOfAnUpdate) {
  EXPECT_EQ(Recommend(MakeEvidence(MakeJob("sync", 8))).batch.samples_per_update, 8 * 32);
  EXPECT_EQ(Recommend(MakeEvidence(MakeJob("sync_backup", 8))).batch.samples_per_update, 7 * 32);
  EXPECT_EQ(Recommend(MakeEvidence(MakeJob("hybrid", 8))).batch.samples_per_update, 4 * 32);
  EXPECT_EQ(Recommend(MakeEvidence(MakeJob("downpour", 8))).batch.samples_per_update, 32);
}

// ----------------------------------------------------------------------------------------- batch

Evidence WithNoise(const v1::Job& job, uint64_t updates, double trace, double squared_gradient) {
  Evidence evidence = MakeEvidence(job);
  evidence.has_run = true;
  v1::GradientNoise& noise = evidence.noise.emplace();
  noise.set_updates(updates);
  noise.set_trace(trace);
  noise.set_squared_gradient(squared_gradient);
  return evidence;
}

TEST(BatchTest, IsComparedWithTheNoiseScale) {
  const v1::Job job = MakeJob("sync", 8);  // 256 samples
  const Evidence below = WithNoise(job, 40, 512, 0.5);
  const BatchAdvice advice = AdviseBatch(below);
  EXPECT_EQ(advice.place, BatchAdvice::kBelow);
  EXPECT_EQ(advice.noise_scale.value_or(0), 1024);
  EXPECT_NEAR(advice.twice.updates, (1 + 1024. / 512) / (1 + 1024. / 256), 1e-12);
  EXPECT_NEAR(advice.twice.samples, (1 + 512. / 1024) / (1 + 256. / 1024), 1e-12);
  EXPECT_NEAR(advice.half.updates, (1 + 1024. / 128) / (1 + 1024. / 256), 1e-12);
  EXPECT_NEAR(advice.half.samples, (1 + 128. / 1024) / (1 + 256. / 1024), 1e-12);
  const std::string text = AdviceText(below, Recommend(below));
  EXPECT_THAT(text, HasSubstr("256 samples in an update are below the gradient noise scale of 1,024"));
  EXPECT_THAT(text, HasSubstr("40 updates"));
  EXPECT_THAT(text, HasSubstr("0.60 times the updates"));
  const nlohmann::ordered_json json = AdviceJson(below, Recommend(below))["batch"];
  EXPECT_EQ(json["place"], "below");
  EXPECT_EQ(json["noise_scale"], 1024);
  EXPECT_EQ(json["noise_updates"], 40);
  EXPECT_EQ(json["noise_trace"], 512);
  EXPECT_EQ(json["twice"]["updates"], advice.twice.updates);

  EXPECT_EQ(AdviseBatch(WithNoise(job, 40, 300, 1)).place, BatchAdvice::kAbout);
  const Evidence above = WithNoise(job, 40, 100, 1);
  EXPECT_EQ(AdviseBatch(above).place, BatchAdvice::kAbove);
  EXPECT_THAT(AdviceText(above, Recommend(above)), HasSubstr("do not pay"));
  EXPECT_EQ(AdviseBatch(WithNoise(job, 40, -1, 1)).twice.samples, 2) << "no noise was found";
}

TEST(BatchTest, SaysWhatIsMissing) {
  const v1::Job job = MakeJob("sync", 8);
  const auto reason = [](const Evidence& evidence) {
    const BatchAdvice advice = AdviseBatch(evidence);
    EXPECT_EQ(advice.place, BatchAdvice::kUnknown);
    EXPECT_TRUE(AdviceJson(evidence, Recommend(evidence))["batch"]["twice"].is_null());
    EXPECT_THAT(AdviceText(evidence, Recommend(evidence)), HasSubstr("noise scale, which"));
    return advice.reason;
  };
  EXPECT_THAT(reason(MakeEvidence(job)), HasSubstr("--out of a run"));
  Evidence run = MakeEvidence(job);
  run.has_run = true;
  EXPECT_THAT(reason(run), HasSubstr("clip_norm"));
  EXPECT_THAT(reason(WithNoise(job, 9, 512, 0.5)), HasSubstr("9 updates"));
  EXPECT_THAT(reason(WithNoise(job, 40, 512, -0.5)), HasSubstr("too large"));
}

// ----------------------------------------------------------------------------------------- evidence

TEST(EvidenceTest, SlowWorkersDoNotCountInTheStep) {
  const Speeds speeds = SpeedsOf({{0, 0.1}, {1, 0.4}, {2, 0.12}, {5, 0.11}});
  EXPECT_NEAR(speeds.step, 0.11, 1e-12);
  ASSERT_EQ(speeds.slow.size(), 1u);
  EXPECT_NEAR(speeds.slow.at(1), 0.4 / 0.11, 1e-12);
  EXPECT_THAT(SpeedsOf({{0, 0.1}, {1, 0.14}}).slow, IsEmpty());
}

TEST(EvidenceTest, IsTakenFromAStatus) {
  v1::JobStatus status = HealthyStatus();
  status.mutable_settings()->set_batch_size(32);
  status.mutable_settings()->set_block_kib(1024);
  status.mutable_workers(2)->mutable_progress()->set_compute_seconds(600);
  const absl::StatusOr<Evidence> evidence = EvidenceOfStatus(status);
  ASSERT_TRUE(evidence.ok()) << evidence.status();
  EXPECT_EQ(evidence->servers, 2);
  EXPECT_EQ(evidence->parameters, 4000000);
  ASSERT_TRUE(evidence->step.has_value());
  EXPECT_NEAR(evidence->step->mean, 0.05, 1e-12);
  EXPECT_NEAR(evidence->slow.at(2), 10, 1e-9);
  EXPECT_NEAR(evidence->network.latency, 0.5e-6 * 2261.5, 1e-12);
  EXPECT_NEAR(evidence->measured.value().staleness.value_or(0), 2.98, 1e-12);
  const Recommendations recommendations = Recommend(*evidence);
  EXPECT_THAT(PresetsOf(recommendations), Contains("downpour"));
  EXPECT_THAT(AdviceText(*evidence, recommendations), HasSubstr("10 times"));
  EXPECT_FALSE(evidence->noise.has_value()) << "of an asynchronous job";

  status.clear_servers();
  EXPECT_EQ(EvidenceOfStatus(status).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(EvidenceTest, IsTakenFromARun) {
  const std::string directory = testing::TempDir() + "/recommendations_run";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  EXPECT_THAT(std::string(EvidenceOfRun(directory).status().message()), HasSubstr("summary.json"));
  std::ofstream(directory + "/job.textproto")
      << "name: 'run' model { synthetic { parameters: 1000 } } data { synthetic { samples: 10000 } } "
         "batch_size: 10 workers: 4 algorithm { preset: 'downpour' }";
  // In 20 seconds three workers made 200 steps of 90 ms, and one 50 steps of 360 ms.
  std::ofstream(directory + "/summary.json")
      << R"({"phase": "DONE", "samples": 6500, "servers": 2, "workers": 4, "compute_seconds": 72, "push_seconds": 2,
             "pull_seconds": 5, "data_seconds": 1, "pushes_applied": 650, "staleness_mean": 2.5, "round_trip_p50_us": 4000,
             "noise_updates": 93, "noise_trace": 8.5, "noise_squared_gradient": 0.25})";
  std::ofstream metrics(directory + "/metrics.jsonl");
  for (int i = 1; i <= 20; ++i) {
    metrics << "{\"wall_seconds\": " << i << ", \"worker_rates\": [";
    for (int worker = 0; worker < 4; ++worker) {
      metrics << (worker > 0 ? ", " : "") << "{\"worker\": " << worker
              << ", \"samples_per_second\": " << (worker == 3 ? 25 : 100) << ", \"compute_share\": 0.9}";
    }
    metrics << "]}\n";
  }
  metrics.close();
  const absl::StatusOr<Evidence> evidence = EvidenceOfRun(directory);
  ASSERT_TRUE(evidence.ok()) << evidence.status();
  EXPECT_EQ(evidence->servers, 2);
  EXPECT_NEAR(evidence->step.value().mean, 0.09, 1e-9);
  ASSERT_EQ(evidence->slow.size(), 1u);
  EXPECT_NEAR(evidence->slow.at(3), 4, 1e-9);
  EXPECT_NEAR(evidence->network.latency, 0.002, 1e-12);
  EXPECT_NEAR(evidence->measured.value().compute_share, 0.9, 1e-12);
  EXPECT_NEAR(evidence->measured.value().staleness.value_or(0), 2.5, 1e-12);
  EXPECT_THAT(AdviceText(*evidence, Recommend(*evidence)), HasSubstr("--straggler=3:4x"));
  EXPECT_TRUE(evidence->has_run);
  EXPECT_EQ(evidence->noise.value().updates(), 93u);
  EXPECT_EQ(AdviseBatch(*evidence).noise_scale.value_or(0), 34);
}

}  // namespace
}  // namespace catchment
