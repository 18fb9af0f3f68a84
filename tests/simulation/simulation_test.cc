// Whole simulations: against closed forms, and twice with the same seed.
#include "simulation/simulation.h"

#include <glog/logging.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/presets.h"
#include "common/job/validate.h"
#include "nlohmann/json.hpp"
#include "simulation/simulated_server.h"

namespace catchment {
namespace {

constexpr int kBatch = 10;
constexpr double kStep = 0.1;

v1::Job Parse(const std::string& text) {
  v1::Job job;
  CHECK(google::protobuf::TextFormat::ParseFromString(text, &job));
  const absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(job);
  CHECK(complete.ok()) << complete.status();
  return *complete;
}

// A job of one layer with 1,000 parameters, so of one block.
v1::Job MakeJob(const std::string& preset, int workers, int samples) {
  return Parse(
      "name: 'simulated' model { synthetic { parameters: 1000 } } data { synthetic { samples: 1000000 } } "
      "algorithm { preset: '" +
      preset + "' } workers: " + std::to_string(workers) + " batch_size: " + std::to_string(kBatch) +
      " samples: " + std::to_string(samples));
}

SimulationOptions Constant() {
  SimulationOptions options;
  options.step = Distribution{.kind = Distribution::kConstant, .mean = kStep};
  return options;
}

v1::JobStatus RunJob(const v1::Job& job, const SimulationOptions& options) {
  const absl::StatusOr<v1::JobStatus> status = Simulate(job, options);
  CHECK(status.ok()) << status.status();
  EXPECT_EQ(status->phase(), v1::JobStatus::DONE);
  return *status;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The seconds of one update, without those of the beginning and the end of a job.
double SecondsPerUpdate(const v1::Job& small, const v1::Job& large, const SimulationOptions& options) {
  const v1::JobStatus a = RunJob(small, options), b = RunJob(large, options);
  return (b.wall_seconds() - a.wall_seconds()) / static_cast<double>(b.updates() - a.updates());
}

TEST(SimulationTest, SynchronousStepsTakeTheStepAndTheExchange) {
  constexpr int kWorkers = 4;
  SimulationOptions options = Constant();
  options.network = {.bytes_per_second = 1e6, .latency = 0.002};
  const double per_update = SecondsPerUpdate(MakeJob("sync", kWorkers, 100 * kWorkers * kBatch),
                                             MakeJob("sync", kWorkers, 500 * kWorkers * kBatch), options);
  // The answers leave over the server's link one after another, so the workers' steps begin, and their
  // contributions arrive, one transfer after another. The last worker determines the step: it waits for all
  // answers and sends its own contribution.
  const double transfer = (4 * 1000 + kHeaderBytes) / options.network.bytes_per_second;
  EXPECT_NEAR(per_update, kStep + 2 * options.network.latency + (kWorkers + 1) * transfer, 0.002 * kStep);
}

TEST(SimulationTest, AsynchronousWorkersDoNotWaitForEachOther) {
  constexpr int kWorkers = 4;
  v1::Job small = MakeJob("downpour", kWorkers, 100 * kWorkers * kBatch);
  v1::Job large = MakeJob("downpour", kWorkers, 500 * kWorkers * kBatch);
  for (v1::Job* job : {&small, &large}) {
    v1::Straggler* const straggler = job->mutable_faults()->add_stragglers();
    straggler->set_worker(3);
    straggler->set_slowdown_factor(2);
  }
  // Three workers make a step in kStep, one in twice the time.
  EXPECT_NEAR(SecondsPerUpdate(small, large, Constant()), kStep / 3.5, 0.01 * kStep);
}

TEST(SimulationTest, ASlowerWorkerMakesFewerLocalSteps) {
  constexpr int kSteps = 4000;
  v1::Job job = MakeJob("diloco_async", 4, kSteps * kBatch);
  v1::Straggler* const straggler = job.mutable_faults()->add_stragglers();
  straggler->set_worker(3);
  straggler->set_slowdown_factor(4);
  // Three contributions are of 16 steps, and as many of the slow worker's as fit into their time of 4 steps,
  // or of 3, since the master rounds down. At the end there is one more of each worker.
  const auto updates = static_cast<double>(RunJob(job, Constant()).updates());
  EXPECT_GT(updates, kSteps / 13.0);
  EXPECT_LT(updates, kSteps / 12.0 + 8);
}

// Returns the share of their time for which workers wait for answers.
double WaitingShare(const std::string& preset, const std::string& fields, const SimulationOptions& options) {
  const v1::JobStatus status = RunJob(Parse("model { synthetic { parameters: 64000 } } data { synthetic { "
                                            "samples: 1000000 } } algorithm { preset: '" +
                                            preset + "' contribution { pseudo_gradient { " + fields +
                                            " } } } workers: 4 batch_size: 10 samples: 80000"),
                                      options);
  const double waited = status.push_seconds() + status.pull_seconds();
  EXPECT_GT(status.compute_seconds(), 0);
  return waited / (waited + status.compute_seconds());
}

TEST(SimulationTest, OverlapHidesTheExchangeOfAFragment) {
  SimulationOptions options = Constant();
  // A fragment of 16,000 values of four workers takes about a step to the server, and a fourth of one back.
  options.network = {.bytes_per_second = 2.6e6, .latency = 0.002};
  EXPECT_GT(WaitingShare("diloco", "", options), 0.15);
  EXPECT_GT(WaitingShare("diloco", "fragments: 4", options), 0.15);
  EXPECT_LT(WaitingShare("streaming_diloco", "overlap_steps: 2", options), 0.01);
  EXPECT_LT(WaitingShare("diloco_async", "steps_by_speed: false fragments: 4 overlap_steps: 2", options),
            0.01);
}

TEST(SimulationTest, OnlyFirstStepsTakeLonger) {
  constexpr int kWorkers = 4;
  const v1::Job small = MakeJob("sync", kWorkers, kWorkers * kBatch);
  const v1::Job large = MakeJob("sync", kWorkers, 5 * kWorkers * kBatch);
  SimulationOptions options = Constant();
  const double first = RunJob(small, options).wall_seconds();
  const double five = RunJob(large, options).wall_seconds();
  options.start = {.kind = Distribution::kConstant, .mean = 3};
  EXPECT_NEAR(RunJob(small, options).wall_seconds(), first + 3, 0.2);
  EXPECT_NEAR(RunJob(large, options).wall_seconds(), five + 3, 0.2);
}

TEST(SimulationTest, TheStalenessOfEquallyFastWorkersIsTheirNumberMinusOne) {
  const v1::JobStatus status = RunJob(MakeJob("downpour", 8, 800 * kBatch), Constant());
  EXPECT_NEAR(status.staleness_mean(), 7, 0.2);
}

TEST(SimulationTest, TheSynchronousStepIsTheSlowestOfExponentialOnes) {
  constexpr int kWorkers = 4;
  SimulationOptions options;
  options.step = Distribution{.kind = Distribution::kExponential, .mean = kStep};
  const v1::JobStatus status = RunJob(MakeJob("sync", kWorkers, 20'000 * kWorkers), options);
  // The mean of the maximum of n exponential numbers is the sum of 1 / k for k = 1 .. n.
  const double expected = kStep * (1 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4);
  EXPECT_NEAR(status.wall_seconds() / static_cast<double>(status.updates()), expected, 0.05 * expected);
}

TEST(SimulationTest, SlowStepsAddTheirShare) {
  SimulationOptions options = Constant();
  options.slow_steps = 0.1;
  options.slow_step_factor = 11;
  const v1::JobStatus status = RunJob(MakeJob("downpour", 1, 4000 * kBatch), options);
  EXPECT_NEAR(status.wall_seconds() / 4000, 2 * kStep, 0.1 * kStep);
}

TEST(SimulationTest, EveryPresetSpendsItsBudgetExactly) {
  for (const Preset& preset : Presets()) {
    SCOPED_TRACE(preset.name);
    v1::Job job;
    CHECK(
        google::protobuf::TextFormat::ParseFromString("name: 'all' model { synthetic { parameters: 1000 } } "
                                                      "data { synthetic { samples: 1000000 } } workers: 4 "
                                                      "batch_size: 10 samples: 4000",
                                                      &job));
    job.mutable_algorithm()->set_preset(preset.name);
    const absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(job);
    if (!complete.ok()) continue;  // the preset needs something that this job lacks
    SimulationOptions options;
    options.step = Distribution{.kind = Distribution::kLogNormal, .mean = 0.05, .shape = 0.3};
    options.network = {.bytes_per_second = 1e9, .latency = 50e-6};
    options.servers = 2;
    EXPECT_EQ(RunJob(*complete, options).samples(), 4000u);
  }
}

TEST(SimulationTest, SamplesOfWorkersThatFailAreTrainedByOthers) {
  for (const char* preset : {"sync", "downpour", "easgd"}) {
    SCOPED_TRACE(preset);
    SimulationOptions options = Constant();
    options.failures = {.mean_seconds = 20, .away_seconds = 3};
    const v1::JobStatus status = RunJob(MakeJob(preset, 4, 2000 * kBatch), options);
    EXPECT_EQ(status.samples(), 2000u * kBatch);
    EXPECT_GT(status.wall_seconds(), 500 * kStep);
  }
}

// Runs a job, and returns its summary.json.
nlohmann::json SummaryOf(const v1::Job& job, SimulationOptions options) {
  options.out_dir = std::string(getenv("TEST_TMPDIR")) + "/summary";
  std::filesystem::remove_all(options.out_dir);
  RunJob(job, options);
  return nlohmann::json::parse(ReadAll(options.out_dir + "/summary.json"));
}

// The goodput and the uptime of a job whose workers fail.
struct Shares {
  double goodput = 0;
  double uptime = 0;
};
Shares SharesOf(const v1::Job& job, const FailureModel& failures) {
  SimulationOptions options = Constant();
  options.failures = failures;
  const nlohmann::json summary = SummaryOf(job, options);
  return {summary["goodput"].get<double>(), summary["uptime"].get<double>()};
}

TEST(SimulationTest, WithoutFailuresNearlyAllStepsAreInUpdates) {
  for (const char* preset : {"diloco", "diloco_async", "decoupled_diloco"}) {
    SCOPED_TRACE(preset);
    const Shares shares = SharesOf(MakeJob(preset, 4, 8000 * kBatch), {});
    EXPECT_GT(shares.goodput, 0.97);
    EXPECT_LE(shares.goodput, 1);
    EXPECT_GT(shares.uptime, 0.98);
    EXPECT_LE(shares.uptime, 1);
  }
}

// Equally fast workers send at the same moments: all of the model every 24 steps, or a fragment of it.
TEST(SimulationTest, FragmentsDivideTheBytesOfTheBusiestSecond) {
  SimulationOptions options = Constant();
  options.step->mean = 1;
  const auto busiest = [&](const char* preset, const std::string& fields) {
    const v1::Job job = Parse(absl::StrCat(
        "model { synthetic { parameters: 48000 } } data { synthetic { samples: 100000 } } block_kib: 1 "
        "algorithm { preset: '",
        preset, "' contribution { pseudo_gradient { local_steps: 24 ", fields,
        "} } } workers: 4 batch_size: 10 samples: 40000"));
    return SummaryOf(job, options)["busiest_second_bytes"].get<double>();
  };
  constexpr double kModel = 4 * 4 * 48000;  // of 4 workers
  EXPECT_EQ(busiest("diloco", ""), kModel);
  for (const int fragments : {4, 12, 24}) {
    const std::string count = absl::StrCat("fragments: ", fragments);
    EXPECT_NEAR(busiest("streaming_diloco", count), kModel / fragments, 0.1 * kModel / fragments) << count;
    EXPECT_NEAR(busiest("decoupled_diloco", count), kModel / fragments, 0.1 * kModel / fragments) << count;
  }
}

// Each of 8 workers is there for 210 of 239 seconds (docs/algorithms/decoupled_diloco.md).
TEST(SimulationTest, WorkersThatAreGoneHoldUpDiLoCoAndNotDecoupledDiLoCo) {
  constexpr double kThere = 210.0 / 239;
  const FailureModel failures = {.mean_seconds = 210, .away_seconds = 29};
  const auto run = [&](const char* preset, bool hangs) {
    FailureModel model = failures;
    model.hangs = hangs;
    return SharesOf(MakeJob(preset, 8, 250000 * kBatch), model);
  };
  const Shares decoupled = run("decoupled_diloco", false);
  EXPECT_NEAR(decoupled.goodput, kThere, 0.02);
  EXPECT_GT(decoupled.uptime, 0.99);
  const Shares decoupled_hangs = run("decoupled_diloco", true);
  EXPECT_NEAR(decoupled_hangs.goodput, kThere, 0.03);
  EXPECT_GT(decoupled_hangs.uptime, 0.98);
  // It waits until the loss is noticed, after the connection has broken, or the heartbeats are missed.
  const double waits = run("diloco", false).goodput, waits_long = run("diloco", true).goodput;
  EXPECT_LT(waits, decoupled.goodput - 0.01);
  EXPECT_LT(waits_long, waits - 0.1);
}

// With two workers and minibatches of 16, one of 65 samples would be left over.
TEST(SimulationTest, TrainsMergedMinibatchesWithTheJobsModel) {
  for (const bool synchronous : {true, false}) {
    const v1::Job job = Parse(absl::StrCat(
        "name: 'merged' model { layers { flatten {} } layers { dense { units: 10 } } "
        "layers { batch_norm {} } } data { drawn_digits { train_samples: 65 test_samples: 10 } } workers: 2 "
        "batch_size: 16 epochs: 3 last_minibatch: MERGE algorithm { preset: '",
        synchronous ? "sync" : "downpour", "' }"));
    const v1::JobStatus status = RunJob(job, Constant());
    EXPECT_EQ(status.samples(), 3 * 65u);
    EXPECT_EQ(status.updates(), 3 * (synchronous ? 2u : 4u));
  }
}

TEST(SimulationTest, AQuadraticConverges) {
  SimulationOptions options = Constant();
  options.quadratic = QuadraticModel{.condition = 10, .noise = 0.01};
  v1::Job job = MakeJob("downpour", 4, 2000 * kBatch);
  job.mutable_optimizer()->set_learning_rate(0.1);
  job.mutable_optimizer()->set_momentum(0);
  job.mutable_evaluation()->set_keep_best(true);
  const v1::JobStatus status = RunJob(job, options);
  EXPECT_GT(status.test_accuracy(), 0.99) << "the share of the initial loss that is gone";
}

// Each worker is lost, and its next step has twice the time.
TEST(SimulationTest, StepsLongerThanStuckSecondsEnd) {
  for (const char* preset : {"sync", "downpour", "easgd"}) {
    v1::Job job = MakeJob(preset, 2, 8 * kBatch);
    job.mutable_faults()->set_stuck_seconds(30);
    SimulationOptions options;
    options.step = Distribution{.kind = Distribution::kConstant, .mean = 100};
    const v1::JobStatus status = RunJob(job, options);
    EXPECT_EQ(status.samples(), 8u * kBatch) << preset;
  }
}

// Blocks follow each other through the links, so a step depends on their number.
TEST(SimulationTest, AQuadraticHasTheBlocksOfTheModel) {
  for (const int block_kib : {16, 64, 1024}) {
    const auto job = [&](int updates) {
      v1::Job made = MakeJob("downpour", 1, updates * kBatch);
      made.mutable_model()->mutable_synthetic()->set_parameters(65'536);
      made.set_block_kib(block_kib);
      return made;
    };
    SimulationOptions options = Constant();
    options.network = {.bytes_per_second = 1e6, .latency = 0};
    const double model = SecondsPerUpdate(job(20), job(120), options);
    const v1::JobStatus trained = RunJob(job(20), options);
    options.quadratic = QuadraticModel{.condition = 10, .noise = 0};
    EXPECT_NEAR(SecondsPerUpdate(job(20), job(120), options) / model, 1, 0.03) << block_kib;
    const v1::JobStatus quadratic = RunJob(job(20), options);
    EXPECT_NEAR(static_cast<double>(quadratic.bytes_pushed()) / static_cast<double>(trained.bytes_pushed()),
                1, 0.01);
  }
}

// Layers may have less than one of the quadratic's values.
TEST(SimulationTest, AQuadraticTakesThePlaceOfLayersOfAllSizes) {
  const v1::Job job = Parse(
      "name: 'layers' model { layers { flatten {} } layers { dense { units: 1 } } "
      "layers { dense { units: 3 } } layers { dense { units: 2000 } } layers { dense { units: 500 } } "
      "layers { dense { units: 10 } } } data { drawn_digits { train_samples: 64 test_samples: 10 } } "
      "algorithm { preset: 'sync' } workers: 2 batch_size: 8 samples: 320");
  SimulationOptions options = Constant();
  options.quadratic = QuadraticModel{.condition = 10, .noise = 0};
  EXPECT_EQ(RunJob(job, options).samples(), 320u);
}

TEST(SimulationTest, EndsAfterSeconds) {
  SimulationOptions options = Constant();
  options.seconds = 5;
  options.end_reason = "the time is up";
  const absl::StatusOr<v1::JobStatus> status = Simulate(MakeJob("downpour", 2, 100'000 * kBatch), options);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->phase(), v1::JobStatus::STOPPED);
  EXPECT_EQ(status->reason(), "the time is up");
  EXPECT_NEAR(status->wall_seconds(), 5, 0.5);
}

TEST(SimulationTest, TheSameSeedGivesTheSameBytes) {
  const std::string directory = testing::TempDir() + "/simulation";
  v1::Job job = MakeJob("downpour", 4, 500 * kBatch);
  const auto outputs = [&](const std::string& name) {
    SimulationOptions options;
    options.step = Distribution{.kind = Distribution::kLogNormal, .mean = kStep, .shape = 0.3};
    options.network = {.bytes_per_second = 1e8, .latency = 50e-6};
    options.out_dir = directory + "/" + name;
    std::filesystem::remove_all(options.out_dir);
    RunJob(job, options);
    return ReadAll(options.out_dir + "/summary.json") + ReadAll(options.out_dir + "/metrics.jsonl");
  };
  const std::string first = outputs("a");
  EXPECT_NE(first.find("staleness_mean"), std::string::npos);
  EXPECT_EQ(first, outputs("b"));
  job.set_seed(job.seed() + 1);
  EXPECT_NE(first, outputs("c"));
}

TEST(SimulationTest, SimulationsDoNotDisturbEachOther) {
  const auto loss = [](int workers) {
    SimulationOptions options = Constant();
    options.quadratic = QuadraticModel{.condition = 10, .noise = 0.1};
    return RunJob(MakeJob("downpour", workers, 2000 * kBatch), options).test_loss();
  };
  constexpr int kThreads = 4;
  std::vector<double> together(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { together[i] = loss(i + 1); });
  }
  for (int i = 0; i < kThreads; ++i) EXPECT_EQ(together[i], loss(i + 1)) << i + 1 << " workers";
}

TEST(SimulationTest, SaysWhatIsMissing) {
  const v1::Job job = Parse(
      "name: 'layers' model { layers { flatten {} } layers { dense { units: 10 } } } "
      "data { drawn_digits {} } workers: 1 batch_size: 1 samples: 1");
  const absl::StatusOr<v1::JobStatus> status = Simulate(job, SimulationOptions());
  ASSERT_TRUE(absl::IsInvalidArgument(status.status())) << status.status();
  EXPECT_NE(status.status().message().find("--step=lognormal:120ms:0.3"), std::string::npos);
}

TEST(SimulationTest, FewerWorkersWithALargerModelFit) {
  const SimulationOptions options;
  const int64_t small = *WorkersThatFit(MakeJob("sync", 1, kBatch), options, 1e9);
  v1::Job large = MakeJob("sync", 1, kBatch);
  large.mutable_model()->mutable_synthetic()->set_parameters(10'000'000);
  EXPECT_GT(small, 5000);
  EXPECT_LT(*WorkersThatFit(large, options, 1e9), 10);
}

}  // namespace
}  // namespace catchment
