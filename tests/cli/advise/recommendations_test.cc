#include "cli/advise/recommendations.h"

#include <glog/logging.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/presets.h"
#include "common/job/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/live/healthy_status.h"

namespace catchment {
namespace {

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

// ----------------------------------------------------------------------------------------- candidates

TEST(CandidatesTest, AreAllPresetsWithTheirSettingsForTheWorkers) {
  std::vector<LeftOutPreset> left_out;
  const std::vector<Candidate> candidates = Candidates(MakeEvidence(MakeJob("sync", 60)), &left_out);
  EXPECT_EQ(candidates.size() + left_out.size(), Presets().size()) << "the job is one of them";
  for (const Candidate& candidate : candidates) {
    EXPECT_EQ(candidate.settings, Candidate::kPreset);
    v1::Job job = MakeJob(candidate.preset, 60);
    EXPECT_EQ(candidate.job.optimizer().DebugString(), job.optimizer().DebugString()) << candidate.preset;
  }
  // Groups and backup workers need several.
  const std::vector<Candidate> alone = Candidates(MakeEvidence(MakeJob("sync", 1)), &left_out);
  EXPECT_EQ(alone.size() + left_out.size(), Presets().size());
  ASSERT_FALSE(left_out.empty());
  EXPECT_THAT(left_out.front().reason, Not(IsEmpty()));
}

TEST(CandidatesTest, TheJobsSettingsAreAnotherAndSoIsABoundedRate) {
  std::vector<LeftOutPreset> left_out;
  const auto settings = [&](const std::string& optimizer) {
    std::vector<Candidate::Settings> found;
    for (const Candidate& candidate :
         Candidates(MakeEvidence(MakeJob("downpour", 60, optimizer)), &left_out)) {
      if (candidate.settings != Candidate::kPreset) found.push_back(candidate.settings);
    }
    return found;
  };
  EXPECT_THAT(settings(""), IsEmpty());
  EXPECT_THAT(settings("optimizer { learning_rate: 1 momentum: 0 }"),
              ElementsAre(Candidate::kJob, Candidate::kBounded));
  EXPECT_THAT(settings("optimizer { learning_rate: 0.0001 momentum: 0 }"), ElementsAre(Candidate::kJob));
  EXPECT_THAT(settings("optimizer { kind: ADAM }"), ElementsAre(Candidate::kJob));
}

// ----------------------------------------------------------------------------------------- judging

// A trial whose runs reach 0.5 after `seconds` each, and end at `accuracy`.
Trial MakeTrial(const std::string& preset, const std::vector<double>& seconds, double accuracy,
                bool diverged = false) {
  Trial trial{.candidate = {.preset = preset}};
  for (const double one : seconds) {
    RunResult run;
    run.diverged = diverged;
    run.accuracy = accuracy;
    run.scores = {{.seconds = 0, .accuracy = 0}, {.seconds = one, .accuracy = accuracy}};
    trial.runs.push_back(run);
  }
  return trial;
}

std::vector<std::string> Recommended(const Trials& trials) {
  std::vector<std::string> names;
  for (size_t i = 0; i < trials.recommended; ++i) names.push_back(trials.trials[i].candidate.preset);
  return names;
}

TEST(JudgeTest, TheSoonestOfThoseThatEndHighIsFirst) {
  Trials trials;
  trials.trials = {MakeTrial("best", {9}, 0.95), MakeTrial("soonest", {1}, 0.925),
                   MakeTrial("near", {3}, 0.945), MakeTrial("gone", {0.1}, 0.99, /*diverged=*/true)};
  Judge(&trials);
  EXPECT_NEAR(trials.target, 0.95 - kMargin, 1e-12);
  EXPECT_THAT(Recommended(trials), ElementsAre("near", "best"));
  EXPECT_EQ(trials.trials.back().candidate.preset, "gone");
  EXPECT_TRUE(trials.sure);
}

TEST(JudgeTest, IsSureOnlyIfEverySeedSaysSo) {
  Trials trials;
  trials.trials = {MakeTrial("a", {1, 2, 3}, 0.95), MakeTrial("b", {2, 3, 4}, 0.95)};
  Judge(&trials);
  EXPECT_TRUE(trials.sure);
  trials.trials = {MakeTrial("a", {1, 2, 5}, 0.95), MakeTrial("b", {2, 3, 4}, 0.95)};
  Judge(&trials);
  EXPECT_FALSE(trials.sure);
  trials.quadratic = true;
  trials.trials = {MakeTrial("a", {1}, 0.95)};
  Judge(&trials);
  EXPECT_FALSE(trials.sure) << "the model is another";
}

TEST(JudgeTest, TheBestMeanIsRecommendedIfSeedsDiffer) {
  Trials trials;
  trials.trials = {MakeTrial("a", {1, 2}, 0.5), MakeTrial("b", {1}, 0.35)};
  RunResult& second = trials.trials[0].runs[1];
  second.accuracy = 0.3;
  second.scores.back().accuracy = 0.3;
  second.seconds = 7;
  Judge(&trials);
  EXPECT_THAT(Recommended(trials), ElementsAre("a"));
  EXPECT_FALSE(trials.sure) << "one seed ends lower";
  EXPECT_NEAR(trials.trials[0].SecondsTo(trials.target).value_or(0), (0.39 / 0.5 + 7) / 2, 1e-9);
}

TEST(JudgeTest, NothingIsRecommendedIfAllDiverge) {
  Trials trials;
  trials.trials = {MakeTrial("a", {1}, 0.9, /*diverged=*/true), MakeTrial("b", {1}, 0.8, /*diverged=*/true)};
  Judge(&trials);
  EXPECT_EQ(trials.recommended, 0u);
  EXPECT_FALSE(trials.sure);
  EXPECT_THAT(AdviceText(MakeEvidence(MakeJob("sync", 8)), {.trials = trials}), HasSubstr("fewer workers"));
}

// ----------------------------------------------------------------------------------------- servers

TEST(ScalingTest, WorkersComputeForMoreOfTheirTimeWithMoreServers) {
  Evidence evidence = MakeEvidence(MakeJob("downpour", 32));
  evidence.network = {.bytes_per_second = 1.25e8, .latency = 50e-6};
  const absl::StatusOr<double> one = ComputingShare(evidence, 1), four = ComputingShare(evidence, 4);
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(four.ok()) << four.status();
  // 32 workers x 8 MB in a step of 0.1 s are 20 times of what a link carries.
  EXPECT_LT(*one, 0.15);
  EXPECT_GT(*four, 2 * *one);
}

TEST(ScalingTest, CountsTheSamplesOfAnUpdate) {
  const auto samples = [](const char* preset) {
    return AdviseBatch(MakeEvidence(MakeJob(preset, 8))).samples_per_update;
  };
  EXPECT_EQ(samples("sync"), 8 * 32);
  EXPECT_EQ(samples("sync_backup"), 7 * 32);
  EXPECT_EQ(samples("hybrid"), 4 * 32);
  EXPECT_EQ(samples("downpour"), 32);
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

Recommendations OnlyBatch(const Evidence& evidence) { return {.batch = AdviseBatch(evidence)}; }

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
  const std::string text = AdviceText(below, OnlyBatch(below));
  EXPECT_THAT(text, HasSubstr("256 samples in an update are below the gradient noise scale of 1,024"));
  EXPECT_THAT(text, HasSubstr("40 updates"));
  EXPECT_THAT(text, HasSubstr("0.60 times the updates"));
  const nlohmann::ordered_json json = AdviceJson(below, OnlyBatch(below))["batch"];
  EXPECT_EQ(json["place"], "below");
  EXPECT_EQ(json["noise_scale"], 1024);
  EXPECT_EQ(json["noise_updates"], 40);
  EXPECT_EQ(json["noise_trace"], 512);
  EXPECT_EQ(json["twice"]["updates"], advice.twice.updates);

  EXPECT_EQ(AdviseBatch(WithNoise(job, 40, 300, 1)).place, BatchAdvice::kAbout);
  const Evidence above = WithNoise(job, 40, 100, 1);
  EXPECT_EQ(AdviseBatch(above).place, BatchAdvice::kAbove);
  EXPECT_THAT(AdviceText(above, OnlyBatch(above)), HasSubstr("do not pay"));
  EXPECT_EQ(AdviseBatch(WithNoise(job, 40, -1, 1)).twice.samples, 2) << "no noise was found";
}

TEST(BatchTest, SaysWhatIsMissing) {
  const v1::Job job = MakeJob("sync", 8);
  const auto reason = [](const Evidence& evidence) {
    const BatchAdvice advice = AdviseBatch(evidence);
    EXPECT_EQ(advice.place, BatchAdvice::kUnknown);
    EXPECT_TRUE(AdviceJson(evidence, OnlyBatch(evidence))["batch"]["twice"].is_null());
    EXPECT_THAT(AdviceText(evidence, OnlyBatch(evidence)), HasSubstr("noise scale, which"));
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
  status.mutable_settings()->set_name("digits");
  status.mutable_workers(2)->mutable_progress()->set_compute_seconds(600);
  const absl::StatusOr<Evidence> evidence = EvidenceOfStatus(status);
  ASSERT_TRUE(evidence.ok()) << evidence.status();
  EXPECT_EQ(evidence->servers, 2);
  EXPECT_EQ(evidence->job.model().synthetic().parameters(), 4000000u);
  ASSERT_TRUE(evidence->step.has_value());
  EXPECT_NEAR(evidence->step->mean, 0.05, 1e-12);
  EXPECT_NEAR(evidence->slow.at(2), 10, 1e-9);
  EXPECT_NEAR(evidence->network.latency, 0.5e-6 * 2261.5, 1e-12);
  EXPECT_NEAR(evidence->measured.value().staleness.value_or(0), 2.98, 1e-12);
  std::vector<LeftOutPreset> left_out;
  const std::vector<Candidate> candidates = Candidates(*evidence, &left_out);
  EXPECT_TRUE(std::any_of(candidates.begin(), candidates.end(),
                          [](const Candidate& candidate) { return candidate.preset == "downpour"; }))
      << left_out.size() << " are left out: " << left_out.front().reason;
  EXPECT_THAT(AdviceText(*evidence, OnlyBatch(*evidence)), HasSubstr("10 times"));
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
  EXPECT_THAT(AdviceText(*evidence, OnlyBatch(*evidence)), HasSubstr("steps of 4 times"));
  EXPECT_TRUE(evidence->has_run);
  EXPECT_EQ(evidence->noise.value().updates(), 93u);
  EXPECT_EQ(AdviseBatch(*evidence).noise_scale.value_or(0), 34);
}

}  // namespace
}  // namespace catchment
