// Tests StatusText and StatusJson.
#include "cli/live/status_text.h"

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/text.h"
#include "common/program/screen_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/live/healthy_status.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

// Expects that no line of the status is wider than a terminal, unless it is one word.
void ExpectFits(const v1::JobStatus& status) {
  for (const int columns : {40, 80, 120}) {
    for (const absl::string_view line : absl::StrSplit(StatusText(status, nullptr, columns), '\n')) {
      const absl::string_view text = absl::StripLeadingAsciiWhitespace(line);
      const bool is_word = !absl::StrContains(absl::StripPrefix(text, "-> "), ' ');
      EXPECT_TRUE(is_word || ShownColumns(line) <= columns) << line;
    }
  }
}

// Returns the status of a job with values in all tables.
v1::JobStatus Troubled() {
  v1::JobStatus status = HealthyStatus();
  status.mutable_workers(2)->mutable_progress()->set_compute_seconds(186);
  status.mutable_shards(0)->mutable_workers(2)->set_non_finite(2);
  status.mutable_shards(0)->mutable_workers(3)->set_duplicate(1);
  status.mutable_workers(3)->set_host("a-host-with-quite-a-long-name.example.org");
  status.mutable_workers(3)->set_device("cuda:0: a device with a long name indeed");
  return status;
}

TEST(StatusTextTest, HasEverythingWithUnits) {
  EXPECT_EQ(StatusText(Troubled(), nullptr), R"(digits (downpour), training
  progress     51.20 %, 153,600 of 300,000 samples, epoch 2.56 of 5, 4,800 updates
  time         1 min 20 s trained, 1,920 samples/s, 1 min 16 s left
  training     loss 0.1831, accuracy 94.51 %, over the last seconds
  test         loss 0.0721, accuracy 97.70 %, of the weights at 120,000 samples (1 min 03 s)
  staleness    mean 2.98, p50 3, p99 5, max 9 updates
  on the wire  22.5 GB pushed, 22.4 GB pulled; round trip p50 2.26 ms, p99 10.8 ms
  checkpoint   4,000

workers: 4 of 4, 1 evaluator; staleness mean/p50/p99/max in updates, time
  computing/pushing/pulling/waiting for data, time since the last heartbeat
  worker  samples/s   staleness         time  heartbeat  host                                        pid  device
       0        480  2.98/3/5/9  75/5/15/5 %      0.3 s  node0                                      4710  cpu: oneDNN 2.6.3, 2 threads
       1        480  2.98/3/5/9  75/5/15/5 %      0.3 s  node1                                      4711  cpu: oneDNN 2.6.3, 2 threads
       2        186  2.98/3/5/9   90/2/6/2 %      0.3 s  node2                                      4712  cpu: oneDNN 2.6.3, 2 threads
       3        480  2.98/3/5/9  75/5/15/5 %      0.3 s  a-host-with-quite-a-long-name.example.org  4713  cuda:0: a device with a long name indeed

servers: payload in and out; pushes applied and not applied
  server  parameters  version       in      out  applied                not applied  address
       0   2,000,000    4,800  11.2 GB  11.2 GB    4,800  2 not finite, 1 duplicate  node0:7000
       1   2,000,000    4,800  11.2 GB  11.2 GB    4,800                             node1:7000

last events
  worker 3 (node3:4713) joined
  training with 4 workers
  checkpoint 4000 is saved

warnings
  non_finite: 2 contributions with a NaN or an infinity from worker 2 refused
    Training is about to diverge; after 10 in a row the job fails.
    -> Lower optimizer.learning_rate, raise optimizer.schedule.warmup, or set optimizer.clip_norm.
       If it is only this worker, check its data and its device.
  straggler: worker 2 (node2:4712) computes 155 ms a step, 3.1 times the median of 50 ms
    Its contributions are as many times staler as it is slower.
    -> Check the load of its machine and its --threads, or move it to another machine, or end it:
       its samples are assigned to others.
)");
}

TEST(StatusTextTest, FitsWithLongWordsAndNumbers) {
  v1::JobStatus status = Troubled();
  status.set_reason(std::string(300, 'r'));
  status.add_events(std::string(300, 'e'));
  status.mutable_workers(0)->mutable_progress()->set_samples(1'000'000'000'000);
  status.mutable_workers(0)->set_staleness_max(123456789);
  status.mutable_workers(0)->set_device(std::string(300, 'd'));
  status.mutable_servers(0)->set_address(std::string(200, 'a') + ":1");
  ExpectFits(status);
  EXPECT_THAT(StatusText(status, nullptr), HasSubstr(std::string(300, 'd') + "\n"));
}

TEST(StatusTextTest, OnATerminalTablesLeaveOutColumnsAndSayWhich) {
  const std::string text = StatusText(Troubled(), nullptr, 80);
  EXPECT_THAT(text,
              HasSubstr("  worker  samples/s   staleness         time  heartbeat  host               pid\n"));
  EXPECT_THAT(text, HasSubstr("  a-host-with-qui…  4713\n  no room for: device\n"));
  EXPECT_THAT(StatusText(Troubled(), nullptr, 120), HasSubstr("4713  cuda:0: a device with a"));
}

TEST(TrendsTest, DrawTheMeasuresOfATrainingJob) {
  Trends trends;
  v1::JobStatus status = HealthyStatus();
  trends.Add(StatusJson(status, nullptr));
  EXPECT_EQ(trends.Print(80), "");
  for (const double loss : {0.4, 0.2, 0.1}) {
    status.set_train_loss(loss);
    status.set_test_accuracy(1 - loss);
    status.set_samples_per_second(status.samples_per_second() + 100);
    trends.Add(StatusJson(status, nullptr));
  }
  EXPECT_EQ(trends.Print(80), "  rate         ▁▃▆█\n  loss         ▃█▃▁\n  accuracy     █▁▅▇\n");
  EXPECT_EQ(trends.Print(0), trends.Print(80));
}

TEST(StatusTextTest, SaysLittleOfAJobThatHasNotBegun) {
  v1::JobStatus status;
  status.set_job("digits");
  status.set_reason("waiting for servers: 1 of 2 are here");
  status.mutable_settings()->set_workers(2);
  status.mutable_settings()->mutable_algorithm()->set_preset("sync");
  status.add_servers()->set_address("node0:7000");
  status.add_servers();
  const std::string text = StatusText(status, nullptr);
  EXPECT_THAT(text, HasSubstr("digits (sync), waiting: waiting for servers: 1 of 2 are here\n"));
  EXPECT_THAT(text, HasSubstr("workers: 0 of 2, no evaluator\n"));
  EXPECT_THAT(text, HasSubstr("not registered"));
  EXPECT_THAT(text, HasSubstr("no warnings\n"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  ExpectFits(status);
}

TEST(StatusTextTest, SaysThatConnectionsAreInClearText) {
  v1::JobStatus status = HealthyStatus();
  EXPECT_THAT(StatusText(status, nullptr), Not(HasSubstr("security")));
  status.set_insecure(true);
  EXPECT_THAT(StatusText(status, nullptr), HasSubstr("\n  security     INSECURE: "));
}

TEST(StatusTextTest, SaysWhatEndedTheUpdatesOfAQuorum) {
  v1::JobStatus status = HealthyStatus();
  EXPECT_THAT(StatusText(status, nullptr), Not(HasSubstr("quorum")));
  for (int shard : {0, 1}) {
    v1::QuorumStatistics* const quorum = status.mutable_shards(shard)->mutable_quorum();
    quorum->set_by_all(70);
    quorum->set_by_grace(25);
    quorum->set_by_loss(5);
    quorum->add_merged_values(3);
    quorum->add_merged_counts(50);
    quorum->add_merged_values(4);
    quorum->add_merged_counts(50);
  }
  status.mutable_shards(0)->mutable_workers(1)->set_split(12);
  const std::string text = StatusText(status, nullptr);
  EXPECT_THAT(text,
              HasSubstr("\n  quorum       3.5 contributions in an update; 70.00 % of the updates closed by "
                        "all, 25.00 % by the\n               grace, 5.00 % by a loss\n"));
  EXPECT_THAT(text, HasSubstr("  12 late in part  "));
  ExpectFits(status);
  const nlohmann::ordered_json object = StatusJson(status, nullptr);
  EXPECT_EQ(object["closed_by_all"], 140);
  EXPECT_EQ(object["closed_by_grace"], 50);
  EXPECT_EQ(object["closed_by_loss"], 10);
  EXPECT_EQ(object["merged_mean"], 3.5);
  EXPECT_EQ(object["shards"][0]["pushes_split"], 12);
  EXPECT_TRUE(StatusJson(HealthyStatus(), nullptr)["merged_mean"].is_null());
}

TEST(StatusTextTest, ShowsTheFirstAndTheLastOfManyWorkers) {
  v1::JobStatus status = HealthyStatus();
  const v1::WorkerStatus one = status.workers(0);
  for (int i = 4; i < 200; ++i) {
    *status.add_workers() = one;
    status.mutable_workers(i)->set_worker(i);
  }
  const std::string text = StatusText(status, nullptr);
  EXPECT_THAT(text, HasSubstr("\n      15  "));
  EXPECT_THAT(text, Not(HasSubstr("\n      16  ")));
  EXPECT_THAT(text, Not(HasSubstr("\n     183  ")));
  EXPECT_THAT(text, HasSubstr("\n     184  "));
}

// ------------------------------------------------------------------------------------------------- JSON

constexpr const char* kJobNames[] = {"job",
                                     "preset",
                                     "phase",
                                     "reason",
                                     "samples",
                                     "total_samples",
                                     "percent",
                                     "epochs",
                                     "total_epochs",
                                     "updates",
                                     "wall_seconds",
                                     "seconds_left",
                                     "samples_per_second",
                                     "train_loss",
                                     "train_accuracy",
                                     "test_loss",
                                     "test_accuracy",
                                     "test_samples",
                                     "tested_at_samples",
                                     "tested_at_seconds",
                                     "compute_share",
                                     "push_share",
                                     "pull_share",
                                     "data_share",
                                     "staleness_mean",
                                     "staleness_p50",
                                     "staleness_p99",
                                     "staleness_max",
                                     "pushes_applied",
                                     "pushes_late",
                                     "pushes_split",
                                     "pushes_non_finite",
                                     "pushes_duplicate",
                                     "bytes_pushed",
                                     "bytes_pulled",
                                     "round_trip_p50_us",
                                     "round_trip_p99_us",
                                     "plateau_factor",
                                     "noise_scale",
                                     "noise_updates",
                                     "closed_by_all",
                                     "closed_by_grace",
                                     "closed_by_loss",
                                     "grace_seconds_mean",
                                     "merged_mean",
                                     "recoveries",
                                     "updates_computed_again",
                                     "last_checkpoint",
                                     "planned_workers",
                                     "evaluators",
                                     "insecure",
                                     "workers",
                                     "shards",
                                     "events",
                                     "warnings"};
constexpr const char* kWorkerNames[] = {"worker",
                                        "host",
                                        "pid",
                                        "device",
                                        "shared_memory_servers",
                                        "steps",
                                        "samples",
                                        "samples_per_second",
                                        "compute_seconds_per_step",
                                        "bytes_read",
                                        "read_seconds",
                                        "compute_share",
                                        "push_share",
                                        "pull_share",
                                        "data_share",
                                        "staleness_mean",
                                        "staleness_p50",
                                        "staleness_p99",
                                        "staleness_max",
                                        "seconds_since_heartbeat"};
constexpr const char* kShardNames[] = {"shard",          "address",           "parameters",
                                       "version",        "bytes_pushed",      "bytes_pulled",
                                       "pushes_applied", "pushes_waiting",    "pushes_late",
                                       "pushes_split",   "pushes_non_finite", "pushes_duplicate",
                                       "save_error"};
constexpr const char* kWarningNames[] = {"code",  "worker", "shard", "measured",
                                         "bound", "found",  "why",   "advice"};

std::vector<std::string> NamesOf(const nlohmann::ordered_json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

TEST(StatusJsonTest, HasTheNamesThatUsersRelyOn) {
  const auto object = StatusJson(Troubled(), nullptr);
  EXPECT_THAT(NamesOf(object), IsSupersetOf(kJobNames));
  ASSERT_EQ(object["workers"].size(), 4u);
  EXPECT_THAT(NamesOf(object["workers"][0]), IsSupersetOf(kWorkerNames));
  ASSERT_EQ(object["shards"].size(), 2u);
  EXPECT_THAT(NamesOf(object["shards"][0]), IsSupersetOf(kShardNames));
  ASSERT_EQ(object["warnings"].size(), 2u);
  EXPECT_THAT(NamesOf(object["warnings"][0]), IsSupersetOf(kWarningNames));
}

TEST(StatusTextTest, RealTargetsHaveNoAccuracy) {
  v1::JobStatus status = HealthyStatus();
  status.set_has_accuracy(false);
  EXPECT_THAT(StatusText(status, nullptr), Not(HasSubstr("accuracy")));
  EXPECT_THAT(StatusText(status, nullptr), HasSubstr("test         loss 0.0721, of the weights at 120,000"));
  const auto object = StatusJson(status, nullptr);
  EXPECT_TRUE(object["train_accuracy"].is_null());
  EXPECT_TRUE(object["test_accuracy"].is_null());
  EXPECT_EQ(object["test_loss"], 0.0721);
}

TEST(StatusJsonTest, HasTheValues) {
  const auto object = StatusJson(Troubled(), nullptr);
  EXPECT_EQ(object["preset"], "downpour");
  EXPECT_EQ(object["phase"], "TRAINING");
  EXPECT_EQ(object["percent"], 51.2);
  EXPECT_EQ(object["total_epochs"], 5.0);
  EXPECT_EQ(object["samples_per_second"], 1920.4);
  EXPECT_EQ(object["test_accuracy"], 0.977);
  EXPECT_EQ(object["workers"][1]["samples_per_second"], 480.0);
  EXPECT_EQ(object["workers"][1]["pull_share"], 0.15);
  EXPECT_EQ(object["shards"][1]["address"], "node1:7000");
  EXPECT_EQ(object["shards"][1]["pushes_applied"], 4800);
  EXPECT_EQ(object["shards"][0]["pushes_non_finite"], 2);
  EXPECT_EQ(object["warnings"][0]["code"], "non_finite");
  EXPECT_EQ(object["warnings"][1]["code"], "straggler");
  EXPECT_EQ(object["warnings"][1]["worker"], 2);
  EXPECT_DOUBLE_EQ(object["warnings"][1]["measured"].get<double>(), 3.1);
  EXPECT_TRUE(object["warnings"][1]["shard"].is_null());
}

TEST(StatusTest, NamesWorkersWhosePayloadsStayInMemory) {
  v1::JobStatus status = Troubled();
  status.mutable_workers(1)->mutable_progress()->set_shared_memory_servers(2);
  status.mutable_workers(3)->mutable_progress()->set_shared_memory_servers(1);
  EXPECT_THAT(StatusText(status, nullptr), HasSubstr("  in memory    payloads of worker 1, 3\n"));
  for (v1::WorkerStatus& worker : *status.mutable_workers())
    worker.mutable_progress()->set_shared_memory_servers(2);
  EXPECT_THAT(StatusText(status, nullptr), HasSubstr("  in memory    payloads of all workers\n"));
}

TEST(StatusTest, SaysWhatIsReadFromFiles) {
  v1::JobStatus status = HealthyStatus();
  status.mutable_settings()->mutable_data()->set_loader_threads(1);
  status.mutable_workers(0)->mutable_progress()->set_read_seconds(1);  // made, not read
  EXPECT_THAT(StatusText(status, nullptr), Not(HasSubstr("  data ")));
  status.set_bytes_read(3'000'000'000);
  status.mutable_settings()->mutable_data()->set_loader_threads(2);
  for (v1::WorkerStatus& worker : *status.mutable_workers()) {
    worker.mutable_progress()->set_bytes_read(750'000'000);
    worker.mutable_progress()->set_read_seconds(120);  // in the 80 s of each worker
  }
  EXPECT_THAT(StatusText(status, nullptr),
              HasSubstr("  data         3.00 GB read; 1.5 of 2 loader threads of a worker are busy\n"));
  const auto object = StatusJson(status, nullptr);
  EXPECT_EQ(object["workers"][0]["bytes_read"], 750'000'000);
  EXPECT_EQ(object["workers"][0]["read_seconds"], 120);
}

TEST(StatusTest, NoiseScaleIsShownWhereItIsMeasured) {
  v1::JobStatus status = HealthyStatus();
  EXPECT_THAT(StatusText(status, nullptr), Not(HasSubstr("noise")));
  EXPECT_TRUE(StatusJson(status, nullptr)["noise_scale"].is_null());
  for (v1::ShardReport& shard : *status.mutable_shards()) {
    shard.mutable_noise()->set_updates(20);
    shard.mutable_noise()->set_trace(300);
    shard.mutable_noise()->set_squared_gradient(0.25);
  }
  EXPECT_THAT(StatusText(status, nullptr), HasSubstr("noise scale  1,200 samples, measured in 20 updates"));
  const auto object = StatusJson(status, nullptr);
  EXPECT_EQ(object["noise_scale"], 1200);
  EXPECT_EQ(object["noise_updates"], 20);
}

TEST(StatusJsonTest, UnknownValuesAreNull) {
  v1::JobStatus status;
  status.add_servers();
  status.add_workers();
  const auto object = StatusJson(status, nullptr);
  EXPECT_THAT(NamesOf(object), IsSupersetOf(kJobNames));
  for (const char* name : {"total_samples", "percent", "total_epochs", "seconds_left", "samples_per_second",
                           "train_loss", "test_loss", "test_accuracy", "compute_share", "staleness_mean",
                           "round_trip_p50_us", "plateau_factor", "last_checkpoint"}) {
    EXPECT_TRUE(object[name].is_null()) << name << " is " << object[name];
  }
  for (const char* name : {"samples_per_second", "compute_seconds_per_step", "data_share", "staleness_max"}) {
    EXPECT_TRUE(object["workers"][0][name].is_null()) << name;
  }
  for (const char* name : {"address", "version", "bytes_pushed", "pushes_applied", "save_error"}) {
    EXPECT_TRUE(object["shards"][0][name].is_null()) << name;
  }
}

TEST(StatusJsonTest, TwoReportsGiveTheRatesBetweenThem) {
  const v1::JobStatus before = HealthyStatus();
  v1::JobStatus now = before;
  now.set_wall_seconds(82);
  now.set_samples(before.samples() + 1000);
  now.mutable_workers(0)->mutable_progress()->set_samples(38400 + 64);
  now.mutable_workers(0)->mutable_progress()->set_compute_seconds(60.5);
  const auto object = StatusJson(now, &before);
  EXPECT_EQ(object["samples_per_second"], 500.0);
  EXPECT_EQ(object["workers"][0]["samples_per_second"], 128.0);
  EXPECT_TRUE(object["workers"][1]["samples_per_second"].is_null());
}

}  // namespace
}  // namespace catchment
