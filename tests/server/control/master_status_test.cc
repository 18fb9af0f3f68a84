#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/control/master_fixture.h"

namespace catchment {
namespace {

TEST_F(MasterTest, StatusTellsTheLearningRateOfTheFirstServer) {
  Start(MakeJob({.synchronous = false, .workers = 2, .epochs = 4}), 2);
  shards_[0].extra()->set_learning_rate(0.25);
  shards_[1].extra()->set_learning_rate(7);
  Exchange();
  EXPECT_EQ(master_->Status().learning_rate(), 0.25);
  shards_[0].extra()->mutable_momentum()->set_rate_factor(0.5f);
  Exchange();
  EXPECT_EQ(master_->Status().learning_rate(), 0.125);
}

TEST_F(MasterTest, StatusTellsRatesOverTheLastSeconds) {
  Start(MakeJob({.synchronous = false, .epochs = 4}));
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  for (int i = 0; i < 5; ++i) {
    clock_.Advance(1);
    DoStep(&worker);
    ASSERT_TRUE(Beat(worker).ok());
  }
  Exchange();
  const v1::JobStatus status = master_->Status();
  EXPECT_EQ(status.samples(), 20u);
  EXPECT_DOUBLE_EQ(status.epochs(), 0.2);
  EXPECT_EQ(status.total_samples(), 400u);
  EXPECT_DOUBLE_EQ(status.samples_per_second(), 4);
  EXPECT_DOUBLE_EQ(status.seconds_left(), 95);
  EXPECT_DOUBLE_EQ(status.train_loss(), 2);
  EXPECT_DOUBLE_EQ(status.train_accuracy(), 0.5);
  EXPECT_DOUBLE_EQ(status.wall_seconds(), 5);
  ASSERT_EQ(status.workers_size(), 1);
  EXPECT_EQ(status.workers(0).progress().samples(), 20u);
}

TEST_F(MasterTest, StatusTellsTheJobsSettingsAndWhoTakesPart) {
  v1::Job job = MakeJob({.synchronous = false, .workers = 2});
  job.mutable_model()->add_layers();
  Start(job);
  EXPECT_EQ(master_->Status().settings().workers(), 2u);
  EXPECT_FALSE(master_->Status().settings().has_model());
  EXPECT_EQ(master_->Status().evaluators(), 0u);
  const Worker worker = Join();
  Join(v1::EVALUATOR);
  EXPECT_EQ(master_->Status().evaluators(), 1u);
  ASSERT_EQ(master_->Status().workers_size(), 1);
  EXPECT_EQ(master_->Status().workers(0).incarnation(), worker.incarnation);
}

TEST_F(MasterTest, StatusKeepsTheWorkOfThoseThatHaveLeft) {
  Start(MakeJob({.synchronous = false, .epochs = 4}));
  for (int i = 0; i < 3; ++i) {
    Worker worker = Join();
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    for (int step = 0; step < 5; ++step) DoStep(&worker);
    Leave(worker);
    Exchange();
  }
  EXPECT_EQ(master_->Status().samples(), 60u);
}

TEST_F(MasterTest, StatusAddsUpTheShards) {
  Start(MakeJob({.synchronous = false}));
  Join();
  for (FakeShard& shard : shards_) {
    shard.extra()->set_bytes_pushed(100);
    v1::WorkerStatistics* statistics = shard.extra()->add_workers();
    statistics->set_worker(0);
    statistics->set_applied(4);
    statistics->set_late(1);
    statistics->set_split(2);
    for (uint64_t value : {0, 3}) statistics->add_staleness_values(value);
    for (uint64_t count : {3, 1}) statistics->add_staleness_counts(count);
  }
  Exchange();
  const v1::JobStatus status = master_->Status();
  EXPECT_EQ(status.bytes_pushed(), 200u);
  EXPECT_EQ(status.pushes_applied(), 4u) << "of shard 0";
  EXPECT_EQ(status.pushes_late(), 1u);
  EXPECT_EQ(status.pushes_split(), 2u);
  EXPECT_DOUBLE_EQ(status.staleness_mean(), 0.75);
  EXPECT_EQ(status.staleness_p50(), 0);
  EXPECT_EQ(status.staleness_p99(), 3);
  EXPECT_EQ(status.workers(0).staleness_max(), 3);
  EXPECT_EQ(status.shards_size(), 2);
}

TEST_F(MasterTest, ProgressThatWasOvertakenChangesNothing) {
  Start(MakeJob({.synchronous = false}));
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  DoStep(&worker);
  const Worker earlier = worker;
  DoStep(&worker);
  ASSERT_TRUE(Beat(worker).ok());
  ASSERT_TRUE(Beat(earlier).ok());
  EXPECT_EQ(master_->Status().workers(0).progress().steps(), 2u);
}

}  // namespace
}  // namespace catchment
