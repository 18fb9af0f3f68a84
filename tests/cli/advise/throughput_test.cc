// The model of a job's speed: against closed forms, and against simulations with the production code.
#include "cli/advise/throughput.h"

#include <glog/logging.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/validate.h"
#include "simulation/simulated_server.h"
#include "simulation/simulation.h"

namespace catchment {
namespace {

constexpr double kStep = 0.1;
constexpr int kBatch = 10;
// A network of whose links nothing is seen beside a step.
constexpr NetworkModel kFast = {};

Distribution Constant() { return {.kind = Distribution::kConstant, .mean = kStep}; }
Distribution Exponential() { return {.kind = Distribution::kExponential, .mean = kStep}; }

// The payload of 1,000 parameters in one block.
Load SmallLoad() { return {.sent = 4000, .received = 4000}; }
Load Groups(int groups, int backup = 0) {
  Load load = SmallLoad();
  load.groups = groups;
  load.backup = backup;
  return load;
}

double Harmonic(int from, int to) {
  double sum = 0;
  for (int i = from; i <= to; ++i) sum += 1.0 / i;
  return sum;
}

Prediction PredictOne(const Load& load, const Distribution& step, const NetworkModel& network, int workers,
                      int servers = 1) {
  return ThroughputModel(load, step, {}, network).Predict(workers, servers);
}

TEST(ThroughputTest, OneWorkerTakesTheStepTheRoundTripAndTheServersTime) {
  const NetworkModel network = {.bytes_per_second = 1e6, .latency = 0.002};
  const double payload = 4000 + kHeaderBytes;
  const double server = kServerSecondsPerBlock + kServerSecondsPerByte * 2 * payload;
  const double seconds = kStep + 2 * 0.002 + 2 * payload / 1e6 + server;
  for (const Load& load : {SmallLoad(), Groups(1)}) {
    const Prediction prediction = PredictOne(load, Constant(), network, 1);
    EXPECT_NEAR(prediction.contributions_per_second, 1 / seconds, 1e-9);
    EXPECT_NEAR(prediction.efficiency, kStep / seconds, 1e-9);
  }
}

TEST(ThroughputTest, OverlapHidesAllButTheLastBlocks) {
  const NetworkModel network = {.bytes_per_second = 1e6};
  Load load = SmallLoad();
  load.blocks = 8;
  const double whole = PredictOne(load, Constant(), network, 1).exchange;
  load.exposed = 0.25;
  EXPECT_NEAR(PredictOne(load, Constant(), network, 1).exchange, 0.25 * whole, 1e-9);
  // The last block's way to the server and back is not hidden.
  const double block = 500 + kHeaderBytes;
  load.exposed = 0;
  EXPECT_NEAR(PredictOne(load, Constant(), network, 1).exchange,
              2 * block / 1e6 + kServerSecondsPerBlock + 2 * block * kServerSecondsPerByte, 1e-9);
  // A step hides no more than itself.
  load = {.sent = 1e6, .received = 4000, .blocks = 10};
  const double long_exchange = PredictOne(load, Constant(), network, 1).exchange;
  load.exposed = 0.25;
  EXPECT_NEAR(PredictOne(load, Constant(), network, 1).exchange, long_exchange - 0.75 * kStep, 1e-9);
}

TEST(ThroughputTest, AGroupIsAnsweredOneAfterAnother) {
  const NetworkModel network = {.bytes_per_second = 1e6, .latency = 0.002};
  constexpr int kWorkers = 8;
  const double payload = 4000 + kHeaderBytes;
  const double server = kServerSecondsPerBlock + kServerSecondsPerByte * 2 * payload;
  const double seconds = kStep + 2 * 0.002 + (kWorkers + 1) * payload / 1e6 + server;
  EXPECT_NEAR(PredictOne(Groups(1), Constant(), network, kWorkers).contributions_per_second,
              kWorkers / seconds, 0.005 * kWorkers / seconds);
}

TEST(ThroughputTest, AGroupWaitsForTheExpectedMaximum) {
  for (const int workers : {1, 2, 4, 16, 64}) {
    const Prediction prediction = PredictOne(Groups(1), Exponential(), kFast, workers);
    const double seconds = kStep * Harmonic(1, workers) + prediction.exchange;
    EXPECT_NEAR(prediction.contributions_per_second, workers / seconds, 0.03 * workers / seconds) << workers;
  }
}

TEST(ThroughputTest, BackupWorkersAreNotWaitedForAndNotCounted) {
  const Prediction prediction = PredictOne(Groups(1, 2), Exponential(), kFast, 10);
  const double seconds = kStep * Harmonic(3, 10) + prediction.exchange;
  EXPECT_NEAR(prediction.contributions_per_second, 8 / seconds, 0.02 * 8 / seconds);
}

TEST(ThroughputTest, StepsBetweenContributionsLowerTheSpread) {
  Load load = Groups(1);
  load.steps = 100;
  const Prediction prediction = PredictOne(load, Exponential(), kFast, 2);
  // The expected maximum of two normal numbers is 1 / sqrt(pi) standard deviations above the mean.
  EXPECT_NEAR(prediction.others, 0.564 * 10 * kStep, 0.1 * 10 * kStep);
}

TEST(ThroughputTest, OnlyGroupsWaitForASlowWorker) {
  const ThroughputModel sync(Groups(1), Constant(), {{1, 4.0}}, kFast);
  EXPECT_NEAR(sync.Predict(4, 1).contributions_per_second, 4 / (4 * kStep), 0.1);
  EXPECT_EQ(sync.Predict(4, 1).limit, Limit::kOtherWorkers);
  EXPECT_GT(sync.Predict(1, 1).efficiency, 0.99) << "there is no worker 1";
  const ThroughputModel backup(Groups(1, 1), Constant(), {{1, 4.0}}, kFast);
  EXPECT_NEAR(backup.Predict(4, 1).contributions_per_second, 3 / kStep, 0.1);
  const ThroughputModel arrivals(SmallLoad(), Constant(), {{1, 4.0}}, kFast);
  EXPECT_NEAR(arrivals.Predict(4, 1).contributions_per_second, 3.25 / kStep, 0.1);
  Load bounded = SmallLoad();
  bounded.bounded = true;
  EXPECT_NEAR(ThroughputModel(bounded, Constant(), {{1, 4.0}}, kFast).Predict(4, 1).contributions_per_second,
              4 / (4 * kStep), 0.1);
}

TEST(ThroughputTest, AServerGivesNoMoreThanItsLinkCarries) {
  const NetworkModel network = {.bytes_per_second = 1e6};
  Load load = SmallLoad();
  load.blocks = 2;
  const double bytes = 4000 + 2 * kHeaderBytes;
  const Prediction one = PredictOne(load, Constant(), network, 1000, 1);
  EXPECT_NEAR(one.contributions_per_second, 1e6 / bytes, 0.01 * 1e6 / bytes);
  EXPECT_EQ(one.limit, Limit::kServerLink);
  const Prediction two = PredictOne(load, Constant(), network, 1000, 2);
  EXPECT_NEAR(two.contributions_per_second, 2 * 1e6 / bytes, 0.01 * 2 * 1e6 / bytes);
  const Prediction processor = PredictOne(load, Constant(), kFast, 100000, 1);
  EXPECT_EQ(processor.limit, Limit::kServerProcessor);
}

TEST(ThroughputTest, MostWorkersAreTheLastThatKeepTheEfficiency) {
  for (const Load& load : {SmallLoad(), Groups(1)}) {
    const ThroughputModel model(load, {.kind = Distribution::kLogNormal, .mean = kStep, .shape = 0.02}, {},
                                {.bytes_per_second = 1e7, .latency = 0.001});
    const int most = model.MostWorkers(1, 0.9);
    EXPECT_GT(most, 1);
    EXPECT_GE(model.Predict(most, 1).efficiency, 0.9);
    EXPECT_LT(model.Predict(most + 1, 1).efficiency, 0.9);
  }
  const ThroughputModel slow(SmallLoad(), Constant(), {}, {.latency = 1});
  EXPECT_EQ(slow.MostWorkers(1, 0.9), 0);
}

TEST(ThroughputTest, TakesTheLoadFromTheJob) {
  v1::Job job;
  CHECK(google::protobuf::TextFormat::ParseFromString(
      "name: 'job' model { synthetic { parameters: 1000000 } } data { synthetic {} } workers: 8 batch_size: "
      "10 "
      "samples: 1000 compression { push: BFLOAT16 } algorithm { preset: 'downpour' contribution { gradient { "
      "push_period: 2 fetch_period: 4 } } }",
      &job));
  const absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(job);
  ASSERT_TRUE(complete.ok()) << complete.status();
  const Load load = LoadOf(*complete, 1000000, 0.5);
  EXPECT_EQ(load.steps, 2);
  EXPECT_EQ(load.sent, 2e6);
  EXPECT_EQ(load.received, 2e6) << "4 MB every other contribution";
  EXPECT_EQ(load.blocks, 4);
  EXPECT_EQ(load.exposed, 0.5);
  EXPECT_EQ(load.groups, 0);
}

// ------------------------------------------------------------------------------------ against simulations

v1::Job MakeJob(const std::string& preset, int64_t parameters, int block_kib, int workers, int steps) {
  v1::Job job;
  CHECK(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("name: 'job' model { synthetic { parameters: ", parameters,
                   " } } data { synthetic { samples: 1000000 } } block_kib: ", block_kib,
                   " algorithm { preset: '", preset, "' } workers: ", workers, " batch_size: ", kBatch,
                   " samples: ", kBatch * workers * steps),
      &job));
  const absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(job);
  CHECK(complete.ok()) << complete.status();
  return *complete;
}

// Returns the samples a second without the beginning and the end of a job.
double SimulatedRate(const std::string& preset, int64_t parameters, int block_kib, int workers,
                     const SimulationOptions& options) {
  double samples[2], seconds[2];
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<v1::JobStatus> status =
        Simulate(MakeJob(preset, parameters, block_kib, workers, i == 0 ? 20 : 80), options);
    CHECK(status.ok()) << status.status();
    samples[i] = static_cast<double>(status->samples());
    seconds[i] = status->wall_seconds();
  }
  return (samples[1] - samples[0]) / (seconds[1] - seconds[0]);
}

void ExpectAsSimulated(const std::string& preset, int64_t parameters, int block_kib, double exposed,
                       int workers, const Distribution& step, const NetworkModel& network) {
  SimulationOptions options;
  options.step = step;
  options.network = network;
  const v1::Job job = MakeJob(preset, parameters, block_kib, workers, 1);
  const Load load = LoadOf(job, parameters, exposed);
  const double predicted = PredictOne(load, step, network, workers).contributions_per_second *
                           static_cast<double>(load.steps) * kBatch;
  const double simulated = SimulatedRate(preset, parameters, block_kib, workers, options);
  EXPECT_NEAR(predicted, simulated, 0.1 * simulated) << preset << " with " << workers << " workers";
}

// A worker's exchange takes 8 ms beside a step of 100 ms, and the server's link is full with 25 workers.
TEST(ThroughputTest, PredictsSimulationsWithABusyServer) {
  const Distribution step = {.kind = Distribution::kLogNormal, .mean = kStep, .shape = 0.3};
  for (const char* preset : {"sync", "downpour", "easgd"}) {
    for (const int workers : {1, 4, 16, 32}) {
      ExpectAsSimulated(preset, 1000, 1024, 1, workers, step, {.bytes_per_second = 1e6, .latency = 0.002});
    }
  }
}

// Eight blocks of a layer each, of which all but the first leave before the pass ends.
TEST(ThroughputTest, PredictsSimulationsWithOverlap) {
  for (const char* preset : {"sync", "downpour"}) {
    for (const int workers : {1, 2}) {
      ExpectAsSimulated(preset, 262144, 128, 1.0 / 8, workers, {.kind = Distribution::kConstant, .mean = 0.2},
                        {.bytes_per_second = 2e7, .latency = 0.001});
    }
  }
}

}  // namespace
}  // namespace catchment
