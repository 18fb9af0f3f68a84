#include "server/outputs/outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace catchment {
namespace {

using nlohmann::json;

std::string Directory(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

std::vector<json> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

v1::JobStatus MakeStatus() {
  v1::JobStatus status;
  status.set_job("digits");
  status.mutable_settings()->set_workers(2);
  status.mutable_settings()->mutable_algorithm()->set_preset("downpour");
  for (int s = 0; s < 2; ++s) status.add_servers();
  status.set_phase(v1::JobStatus::DONE);
  status.set_wall_seconds(4);
  status.set_epochs(1.5);
  status.set_samples(1000);
  status.set_updates(20);
  status.set_test_samples(100);
  status.set_has_accuracy(true);
  status.set_test_accuracy(0.75);
  status.set_test_loss(0.5);
  status.set_staleness_mean(1.25);
  status.set_staleness_p99(3);
  status.set_pushes_applied(20);
  status.set_bytes_pushed(4096);
  status.set_bytes_pulled(8192);
  return status;
}

TEST(OutputsTest, SummaryHasAllThatScriptsRelyOn) {
  const json summary = json::parse(SummaryJson(MakeStatus(), {{"cpu"}}));
  for (const char* key :
       {"algorithm", "servers", "workers", "device", "epochs", "samples", "updates", "wall_seconds",
        "samples_per_second", "test_accuracy", "test_loss", "staleness_mean", "staleness_p99",
        "pushes_applied", "bytes_pushed", "bytes_pulled", "recoveries", "updates_computed_again"}) {
    EXPECT_TRUE(summary.contains(key)) << key;
  }
  EXPECT_EQ(summary["algorithm"], "downpour");
  EXPECT_EQ(summary["servers"], 2);
  EXPECT_EQ(summary["workers"], 2);
  EXPECT_EQ(summary["device"], "cpu");
  EXPECT_EQ(summary["samples_per_second"], 250);
  EXPECT_EQ(summary["test_accuracy"], 0.75);
  EXPECT_EQ(summary["bytes_pulled"], 8192);
}

TEST(OutputsTest, WhatWasNotMeasuredIsNull) {
  v1::JobStatus status = MakeStatus();
  status.set_test_samples(0);
  status.set_wall_seconds(0);
  const json summary = json::parse(SummaryJson(status, {}));
  EXPECT_TRUE(summary["test_accuracy"].is_null());
  EXPECT_TRUE(summary["test_loss"].is_null());
  EXPECT_EQ(summary["samples_per_second"], 0);
  EXPECT_TRUE(summary["round_trip_p50_us"].is_null());
}

TEST(OutputsTest, RealTargetsHaveALossAndNoAccuracy) {
  v1::JobStatus status = MakeStatus();
  status.set_has_accuracy(false);
  const json summary = json::parse(SummaryJson(status, {}));
  EXPECT_TRUE(summary["test_accuracy"].is_null());
  EXPECT_EQ(summary["test_loss"], 0.5);
}

TEST(OutputsTest, SummarySaysWhereTheTimeOfTheWorkersWent) {
  v1::JobStatus status = MakeStatus();
  status.set_compute_seconds(8);
  status.set_push_seconds(4);
  status.set_pull_seconds(2);
  status.set_data_seconds(1);
  status.set_bytes_read(5000);
  status.set_read_seconds(1.5);
  status.set_round_trip_p50_us(500);
  status.set_round_trip_p99_us(900);
  const json summary = json::parse(SummaryJson(status, {}));
  EXPECT_EQ(summary["compute_seconds"], 8);
  EXPECT_EQ(summary["push_seconds"], 4);
  EXPECT_EQ(summary["pull_seconds"], 2);
  EXPECT_EQ(summary["data_seconds"], 1);
  EXPECT_EQ(summary["bytes_read"], 5000);
  EXPECT_EQ(summary["read_seconds"], 1.5);
  EXPECT_EQ(summary["round_trip_p50_us"], 500);
  EXPECT_EQ(summary["round_trip_p99_us"], 900);
}

TEST(OutputsTest, StalenessOfEveryWorkerIsOverAllShards) {
  v1::JobStatus status = MakeStatus();
  for (uint64_t staleness : {0, 4}) {
    v1::WorkerStatistics* worker = status.add_shards()->add_workers();
    worker->set_worker(7);
    worker->add_staleness_values(staleness);
    worker->add_staleness_counts(1);
    // Values without counts are not there.
    for (uint64_t value = 10; value < 1000; ++value) worker->add_staleness_values(value);
  }
  const json workers = json::parse(SummaryJson(status, {}))["staleness_per_worker"];
  ASSERT_EQ(workers.size(), 1u);
  EXPECT_EQ(workers[0]["worker"], 7);
  EXPECT_EQ(workers[0]["mean"], 2);
  EXPECT_EQ(workers[0]["max"], 4);
  const json counts = json::parse(SummaryJson(status, {}))["staleness_counts"];
  EXPECT_EQ(counts, json::parse("[[0, 1], [4, 1]]"));
}

// Two shards; worker 3 has pushed to both, worker 5 to the first alone.
v1::JobStatus WithPushes() {
  v1::JobStatus status = MakeStatus();
  const auto add = [&status](uint32_t shard, uint32_t worker, uint64_t staleness, uint64_t us, double gap) {
    while (status.shards_size() <= static_cast<int>(shard))
      status.add_shards()->set_shard(status.shards_size() - 1);
    v1::WorkerStatistics* statistics = status.mutable_shards(shard)->add_workers();
    statistics->set_worker(worker);
    statistics->set_applied(10);
    statistics->set_late(worker);
    statistics->add_staleness_values(staleness);
    statistics->add_staleness_counts(10);
    statistics->add_staleness_us(us);
    statistics->add_staleness_us_counts(10);
    statistics->set_staleness_seconds_max(2e-6 * static_cast<double>(us));
    statistics->set_gap_count(10);
    statistics->set_gap_sum(10 * gap);
    statistics->set_gap_max(2 * gap);
  };
  add(0, 3, 1, 1000, 0.5);
  add(0, 5, 3, 4000, 0.25);
  add(1, 3, 2, 100'000, 0.125);
  status.mutable_shards(0)->mutable_workers(0)->set_waiting(4);
  status.mutable_shards(0)->mutable_momentum()->set_momentum(0.25);
  status.mutable_shards(0)->mutable_momentum()->set_staleness_mean(3);
  status.mutable_shards(1)->mutable_momentum()->set_momentum(0.5);
  status.mutable_shards(1)->mutable_momentum()->set_total_momentum(0.875);
  return status;
}

TEST(OutputsTest, SummaryTellsOfEveryWorkerOverAllShardsAndOnEach) {
  const json summary = json::parse(SummaryJson(WithPushes(), {}));
  const json& workers = summary["per_worker"];
  ASSERT_EQ(workers.size(), 2u);
  EXPECT_EQ(workers[0]["worker"], 3);
  EXPECT_EQ(workers[0]["pushes_applied"], 10) << "of shard 0: every push goes to all shards";
  EXPECT_EQ(workers[0]["pushes_late"], 3);
  EXPECT_EQ(workers[0]["pushes_waiting"], 4);
  EXPECT_EQ(workers[0]["staleness_mean"], 1.5);
  EXPECT_EQ(workers[0]["staleness_p50"], 1);
  EXPECT_EQ(workers[0]["staleness_p90"], 2);
  EXPECT_NEAR(workers[0]["staleness_seconds_p50"].get<double>(), 0.001, 1e-4);
  EXPECT_NEAR(workers[0]["staleness_seconds_p90"].get<double>(), 0.1, 1e-2);
  EXPECT_DOUBLE_EQ(workers[0]["staleness_seconds_max"].get<double>(), 0.2);
  EXPECT_EQ(workers[0]["gap_mean"], 0.3125);
  EXPECT_EQ(workers[0]["gap_max"], 1);
  ASSERT_EQ(workers[0]["shards"].size(), 2u);
  EXPECT_EQ(workers[0]["shards"][1]["shard"], 1);
  EXPECT_EQ(workers[0]["shards"][1]["staleness_mean"], 2);
  EXPECT_EQ(workers[0]["shards"][1]["gap_mean"], 0.125);
  EXPECT_EQ(workers[1]["shards"].size(), 1u);
}

TEST(OutputsTest, SummaryTellsOfEveryShardWithItsMomentum) {
  const json summary = json::parse(SummaryJson(WithPushes(), {}));
  const json& shards = summary["per_shard"];
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(shards[0]["pushes_applied"], 20);
  EXPECT_EQ(shards[0]["staleness_mean"], 2);
  EXPECT_EQ(shards[0]["momentum"], 0.25);
  EXPECT_EQ(shards[0]["implicit_momentum"], 0.75) << "3 / (1 + 3)";
  EXPECT_EQ(shards[1]["implicit_momentum"], 0.375) << "measured in all, less what was set";
  EXPECT_EQ(summary["momentum"], 0.25);
  EXPECT_EQ(summary["pushes_waiting"], 4);
  EXPECT_EQ(summary["gap_max"], 1);
  const json without = json::parse(SummaryJson(MakeStatus(), {}));
  for (const char* key : {"momentum", "implicit_momentum", "gap_mean", "staleness_seconds_p50"}) {
    EXPECT_TRUE(without[key].is_null()) << key;
  }
}

TEST(OutputsTest, UpdatesOfQuorumsAreAddedUpOverAllShards) {
  v1::JobStatus status = WithPushes();
  const auto summary = [&status] { return json::parse(SummaryJson(status, {})); };
  for (const char* key : {"closed_by_all", "closed_by_grace", "closed_by_loss", "grace_seconds_mean",
                          "merged_mean", "merged_counts"}) {
    ASSERT_TRUE(summary()[key].is_null()) << key;
  }
  EXPECT_TRUE(summary()["per_worker"][0]["share_mean"].is_null());
  for (int shard : {0, 1}) {
    v1::QuorumStatistics* const quorum = status.mutable_shards(shard)->mutable_quorum();
    quorum->set_by_all(10 - shard);
    quorum->set_by_grace(2);
    quorum->set_by_loss(shard);
    quorum->set_grace_seconds(3 * (shard + 1));
    quorum->add_merged_values(1);
    quorum->add_merged_counts(4);
    quorum->add_merged_values(2 + shard);
    quorum->add_merged_counts(8);
    status.mutable_shards(shard)->mutable_workers(0)->set_share_sum(6);
    status.mutable_shards(shard)->mutable_workers(0)->set_split(5);
  }
  status.set_pushes_split(5);
  EXPECT_EQ(summary()["closed_by_all"], 19);
  EXPECT_EQ(summary()["closed_by_grace"], 4);
  EXPECT_EQ(summary()["closed_by_loss"], 1);
  EXPECT_EQ(summary()["grace_seconds_mean"], 0.375);
  EXPECT_EQ(summary()["merged_mean"], 2) << "(8 * 1 + 8 * 2 + 8 * 3) / 24";
  EXPECT_EQ(summary()["merged_counts"], json::parse("[[1, 8], [2, 8], [3, 8]]"));
  EXPECT_EQ(summary()["pushes_split"], 5);
  EXPECT_EQ(summary()["per_worker"][0]["share_mean"], 0.5) << "of the samples in both shards' updates";
  EXPECT_EQ(summary()["per_worker"][0]["pushes_split"], 5);
  EXPECT_EQ(summary()["per_worker"][1]["share_mean"], 0);
  const json line = JobMetrics(status);
  EXPECT_EQ(line["merged_mean"], 2);
  EXPECT_EQ(line["closed_by_loss"], 1);
  EXPECT_EQ(line["pushes_split"], 5);
}

TEST(OutputsTest, NoiseScaleIsOfTheSumsOverAllShards) {
  v1::JobStatus status = WithPushes();
  const auto set = [&status](int shard, uint64_t updates, double trace, double squared_gradient) {
    v1::GradientNoise* const noise = status.mutable_shards(shard)->mutable_noise();
    noise->set_updates(updates);
    noise->set_trace(trace);
    noise->set_squared_gradient(squared_gradient);
  };
  const auto summary = [&status] { return json::parse(SummaryJson(status, {})); };
  set(0, 12, 30, 0.5);
  for (const char* key : {"noise_scale", "noise_updates", "noise_trace", "noise_squared_gradient"}) {
    ASSERT_TRUE(summary()[key].is_null()) << key << ": shard 1 has none";
  }
  set(1, 11, 60, -0.25);
  EXPECT_EQ(summary()["noise_scale"], 360);
  EXPECT_EQ(summary()["noise_updates"], 11);
  EXPECT_EQ(summary()["noise_trace"], 90);
  EXPECT_EQ(summary()["noise_squared_gradient"], 0.25);
  set(1, 9, 60, -0.25);
  EXPECT_TRUE(summary()["noise_scale"].is_null()) << "of too few updates";
  set(1, 11, 60, -0.5);
  EXPECT_TRUE(summary()["noise_scale"].is_null()) << "the gradient is lost in its noise";
  EXPECT_EQ(summary()["noise_updates"], 11);
}

TEST(OutputsTest, GapOfAMetricsLineIsOfThePushesSinceTheOneBefore) {
  const std::string directory = Directory("gaps");
  auto outputs = *Outputs::Open(directory);
  v1::JobStatus status = WithPushes();
  ASSERT_TRUE(outputs->MaybeWriteMetrics(status, 1).ok());
  v1::WorkerStatistics* worker = status.mutable_shards(1)->mutable_workers(0);
  worker->set_gap_count(14);
  worker->set_gap_sum(worker->gap_sum() + 4 * 0.75);
  status.set_samples(2000);
  ASSERT_TRUE(outputs->MaybeWriteMetrics(status, 2).ok());
  status.set_samples(3000);
  ASSERT_TRUE(outputs->MaybeWriteMetrics(status, 3).ok());
  const std::vector<json> lines = Lines(directory + "/metrics.jsonl");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_DOUBLE_EQ(lines[0]["gap_mean"].get<double>(), (0.5 + 0.25 + 0.125) / 3);
  EXPECT_DOUBLE_EQ(lines[1]["gap_mean"].get<double>(), 0.75);
  EXPECT_TRUE(lines[2]["gap_mean"].is_null()) << "there was none";
  EXPECT_EQ(lines[1]["per_worker"].size(), 2u);
  EXPECT_EQ(lines[1]["per_shard"].size(), 2u);
}

TEST(OutputsTest, ProgramMetricsOfALineAreTheMeansSinceTheOneBefore) {
  const std::string directory = Directory("program");
  auto outputs = *Outputs::Open(directory);
  v1::JobStatus status = MakeStatus();
  const auto write = [&](uint64_t samples, double now) {
    status.set_samples(samples);
    ASSERT_TRUE(outputs->MaybeWriteMetrics(status, now).ok());
  };
  write(1000, 1);
  AddProgramMetric("norm", 6, 4, status.mutable_program_metrics());
  write(2000, 2);
  AddProgramMetric("norm", -1, 2, status.mutable_program_metrics());
  AddProgramMetric("rate", 0.25, 1, status.mutable_program_metrics());
  write(3000, 3);
  write(4000, 4);
  const std::vector<json> lines = Lines(directory + "/metrics.jsonl");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["program"], json::object());
  EXPECT_EQ(lines[1]["program"], json({{"norm", 1.5}}));
  EXPECT_EQ(lines[2]["program"], json({{"norm", -0.5}, {"rate", 0.25}}));
  EXPECT_EQ(lines[3]["program"], json::object()) << "there were none";
}

TEST(OutputsTest, MetricsAreALineASecondWhileSamplesComeAndOneForEveryScore) {
  const std::string directory = Directory("metrics");
  auto outputs = *Outputs::Open(directory);
  v1::JobStatus status = MakeStatus();
  status.set_test_samples(0);
  const auto lines_after = [&](uint64_t samples, double now) {
    status.set_samples(samples);
    EXPECT_TRUE(outputs->MaybeWriteMetrics(status, now).ok());
    return Lines(directory + "/metrics.jsonl").size();
  };
  EXPECT_EQ(lines_after(100, 10), 1u);
  EXPECT_EQ(lines_after(200, 10.5), 1u) << "too soon";
  EXPECT_EQ(lines_after(300, 11), 2u);
  EXPECT_EQ(lines_after(300, 20), 2u) << "nothing was trained";
  status.set_test_samples(100);
  EXPECT_EQ(lines_after(300, 20.1), 3u) << "scored";
  EXPECT_EQ(lines_after(300, 20.2), 3u) << "the same score";
  const std::vector<json> lines = Lines(directory + "/metrics.jsonl");
  EXPECT_TRUE(lines[0]["test_accuracy"].is_null());
  EXPECT_EQ(lines[2]["test_accuracy"], 0.75);
  EXPECT_EQ(lines[1]["samples"], 300);
  outputs = *Outputs::Open(directory);
  EXPECT_EQ(Lines(directory + "/metrics.jsonl").size(), 3u) << "a resumed job goes on in them";
  const size_t before = lines_after(300, 40);
  status.set_tested_at_samples(status.tested_at_samples() + 1);
  EXPECT_EQ(lines_after(300, 40), before + 1) << "other weights with the same loss";
}

TEST(OutputsTest, EventsAreInTheNextLineAndTheLastOnesInOneBeforeTheSummary) {
  const std::string directory = Directory("events");
  auto outputs = *Outputs::Open(directory);
  v1::JobStatus status = MakeStatus();
  outputs->NoteEvent("worker 1 (host:7) failed", "lost", 1, 1.5);
  outputs->NoteEvent("training with 2 workers", "", std::nullopt, 0);
  ASSERT_TRUE(outputs->MaybeWriteMetrics(status, 10).ok());
  status.set_samples(2000);
  ASSERT_TRUE(outputs->MaybeWriteMetrics(status, 11).ok());
  outputs->NoteEvent("checkpoint 20 is saved", "checkpoint", std::nullopt, 4);
  outputs->NoteEvent("cannot write /tmp/\xff", "", std::nullopt, 4);
  ASSERT_TRUE(outputs->WriteSummary(status, {}).ok());
  const std::vector<json> lines = Lines(directory + "/metrics.jsonl");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(
      lines[0]["events"],
      json::array(
          {{{"wall_seconds", 1.5}, {"event", "worker 1 (host:7) failed"}, {"kind", "lost"}, {"worker", 1}},
           {{"wall_seconds", 0}, {"event", "training with 2 workers"}}}));
  EXPECT_EQ(lines[1]["events"], json::array());
  EXPECT_EQ(lines[2]["events"][0]["kind"], "checkpoint");
  EXPECT_EQ(lines[2]["events"][1]["event"], "cannot write /tmp/\ufffd");
  EXPECT_EQ(lines[2]["samples"], 2000);
}

// A month of training, in which a line is due every second at first.
TEST(OutputsTest, LinesOfALongJobComeLessOftenAndFewHaveTheValuesOfWorkers) {
  const std::string directory = Directory("long");
  auto outputs = *Outputs::Open(directory);
  v1::JobStatus status = WithPushes();
  const auto lines = [&] { return Lines(directory + "/metrics.jsonl"); };
  uint64_t samples = 0;
  const auto train = [&](double from, double seconds) {
    for (double now = from; now < from + seconds; ++now) {
      status.set_samples(++samples);
      status.set_wall_seconds(now);
      ASSERT_TRUE(outputs->MaybeWriteMetrics(status, now).ok());
    }
  };
  train(1, 700);
  const std::vector<json> first = lines();
  ASSERT_EQ(first.size(), 700u);
  for (size_t i = 0; i < first.size(); ++i) {
    for (const char* key : {"per_worker", "per_shard", "worker_rates"})
      ASSERT_EQ(first[i].contains(key), i < 600 || i % 10 == 0) << key << " of line " << i;
    ASSERT_TRUE(first[i].contains("train_loss"));
  }
  train(5 * 3600 - 200, 100);
  EXPECT_NEAR(lines().size(), 700 + 20, 1) << "every 4.9 seconds";
  train(700 * 3600, 100);
  EXPECT_NEAR(lines().size(), 700 + 20 + 10, 2) << "every 10 seconds";
}

TEST(OutputsTest, LinesOfManyWorkersAndServersComeLessOften) {
  auto outputs = *Outputs::Open(Directory("many"));
  v1::JobStatus status = MakeStatus();
  for (int s = 0; s < 40; ++s) {
    v1::ShardReport* const shard = status.add_shards();
    shard->set_shard(s);
    for (int w = 0; w < 1500; ++w) shard->add_workers()->set_worker(w);
  }
  ASSERT_TRUE(outputs->MaybeWriteMetrics(status, 10).ok());
  EXPECT_FALSE(outputs->MetricsAreDue(status.samples() + 1, 15.9)) << "60,000 pairs take 6 s";
  EXPECT_TRUE(outputs->MetricsAreDue(status.samples() + 1, 16));
  EXPECT_FALSE(outputs->MetricsAreDue(status.samples(), 16)) << "nothing was trained";
}

TEST(OutputsTest, EveryLineIsAnEventForTensorBoardAtTheTimeOfDay) {
  const std::string directory = Directory("events");
  auto outputs = *Outputs::Open(directory, [] { return 1234.5; });
  v1::JobStatus status = MakeStatus();
  const auto bytes_after = [&](uint64_t samples, double now) {
    status.set_samples(samples);
    EXPECT_TRUE(outputs->MaybeWriteMetrics(status, now).ok());
    const std::filesystem::directory_iterator file(directory + "/tensorboard");
    EXPECT_THAT(file->path().filename().string(), testing::StartsWith("events.out.tfevents.1234."));
    return file->file_size();
  };
  const uintmax_t first = bytes_after(100, 10);
  EXPECT_EQ(bytes_after(200, 10.5), first) << "no line, no event";
  EXPECT_GT(bytes_after(300, 11), first);
}

TEST(OutputsTest, SummaryIsWrittenToItsDirectoryAndNowhereWithoutOne) {
  const std::string directory = Directory("summary/deep");
  ASSERT_TRUE((*Outputs::Open(directory))->WriteSummary(MakeStatus(), {}).ok());
  std::ifstream file(directory + "/summary.json");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), SummaryJson(MakeStatus(), {}));
  const auto none = *Outputs::Open("");
  EXPECT_FALSE(none->enabled());
  EXPECT_TRUE(none->WriteSummary(MakeStatus(), {}).ok());
  EXPECT_TRUE(none->MaybeWriteMetrics(MakeStatus(), 1).ok());
}

TEST(OutputsTest, DirectoryThatCannotBeMadeIsNamed) {
  const std::string file = Directory("a_file");
  std::ofstream(file) << "x";
  const absl::Status status = Outputs::Open(file + "/out").status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(file));
}

}  // namespace
}  // namespace catchment
