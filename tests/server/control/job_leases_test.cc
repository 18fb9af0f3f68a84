// The samples and versions that workers are granted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/server/control/master_fixture.h"

namespace catchment {
namespace {

TEST_F(MasterTest, AsynchronousLeasesHoldASecondOfTheWorkersSteps) {
  for (bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous, .epochs = 100}));
    Worker worker = Join();
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    const int first = worker.lease.minibatches_size();
    DoLease({&worker});
    worker.progress.set_compute_seconds(0.05 * first);
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    EXPECT_EQ(worker.lease.minibatches_size(), synchronous ? first : 20) << "synchronous: " << synchronous;
  }
}

TEST_F(MasterTest, ManyWorkersAreToCallLessOftenEach) {
  v1::Job job = MakeJob({.synchronous = false, .workers = 1});
  job.mutable_faults()->set_heartbeat_timeout_seconds(60);
  Start(job);
  const Worker first = Join();
  EXPECT_DOUBLE_EQ(Beat(first)->again_in_seconds(), 0.5);
  EXPECT_DOUBLE_EQ(master_->members().LongestLeaseWait(), 3);
  for (int i = 1; i < 1000; ++i) Join();
  EXPECT_DOUBLE_EQ(Beat(first)->again_in_seconds(), 5) << "200 a second of all of them";
  EXPECT_DOUBLE_EQ(master_->members().LongestLeaseWait(), 5);
  job.mutable_faults()->set_heartbeat_timeout_seconds(6);
  Start(job);
  EXPECT_DOUBLE_EQ(master_->members().LongestLeaseWait(), 2) << "a third of its lease";
}

TEST_F(MasterTest, NothingIsDealtBeforeAllWorkersHaveCome) {
  for (bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous, .workers = 2}));
    Worker first = Join();
    Exchange();
    absl::StatusOr<v1::Lease> lease = Ask(first, 0);
    ASSERT_TRUE(lease.ok());
    EXPECT_EQ(lease->state(), v1::Lease::WAIT);
    EXPECT_DOUBLE_EQ(lease->retry_seconds(), 0.1);
    EXPECT_EQ(master_->Status().phase(), v1::JobStatus::WAITING);
    Worker second = Join();
    EXPECT_EQ(Next(&first), v1::Lease::GRANTED);
    EXPECT_EQ(Next(&second), v1::Lease::GRANTED);
    Leave(second);
    Exchange();
    DoLease({&first});
    EXPECT_EQ(Next(&first), v1::Lease::GRANTED) << "it waits for that number only once";
  }
}

TEST_F(MasterTest, LeasesWaitForAllShardsToKnowTheMember) {
  for (bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous}));
    Worker worker = Join();
    EXPECT_EQ(Ask(worker, 0)->state(), v1::Lease::WAIT);
    shards_[0].Take(master_->Command());
    ASSERT_TRUE(master_->OnShardReport(shards_[0].Report()).ok());
    const absl::StatusOr<v1::Lease> lease = Ask(worker, 0);
    EXPECT_EQ(lease->state(), v1::Lease::WAIT) << "shard 1 has not heard of it";
    EXPECT_DOUBLE_EQ(lease->retry_seconds(), 0.005);
    shards_[1].Take(master_->Command());
    ASSERT_TRUE(master_->OnShardReport(shards_[1].Report()).ok());
    EXPECT_EQ(Ask(worker, 0)->state(), v1::Lease::GRANTED);
  }
}

TEST_F(MasterTest, LeasesHaveTheLocalStepsOfTheWorkersSpeed) {
  v1::Job job = MakeJob({.synchronous = false, .workers = 2});
  v1::PseudoGradient* const contribution =
      job.mutable_algorithm()->mutable_contribution()->mutable_pseudo_gradient();
  contribution->set_local_steps(16);
  contribution->set_steps_by_speed(true);
  Start(job);
  Worker fast = Join(), slow = Join();
  ASSERT_EQ(Next(&fast), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&slow), v1::Lease::GRANTED);
  EXPECT_EQ(fast.lease.local_steps(), 16u) << "no speed is known";
  fast.progress.set_steps(2);
  fast.progress.set_compute_seconds(1);
  slow.progress.set_steps(1);
  slow.progress.set_compute_seconds(2);
  ASSERT_EQ(Next(&fast), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&slow), v1::Lease::GRANTED);
  EXPECT_EQ(fast.lease.local_steps(), 16u);
  EXPECT_EQ(slow.lease.local_steps(), 4u);
  Start(MakeJob({.synchronous = false}));
  Worker other = Join();
  ASSERT_EQ(Next(&other), v1::Lease::GRANTED);
  EXPECT_EQ(other.lease.local_steps(), 0u);
}

TEST_F(MasterTest, OnlyTheLastLeaseOfASynchronousJobIsMarkedAsLast) {
  Start(MakeJob({.epochs = 40}));
  Worker worker = Join();
  std::vector<bool> last;
  while (Next(&worker) == v1::Lease::GRANTED) {
    last.push_back(worker.lease.last());
    DoLease({&worker});
    Exchange();
  }
  ASSERT_GT(last.size(), 1u);
  EXPECT_TRUE(last.back());
  EXPECT_EQ(std::count(last.begin(), last.end(), true), 1);
}

// Fragments that are in flight have different versions.
TEST_F(MasterTest, WorkersThatOverlapSettleWhereACheckpointIsTaken) {
  for (const uint32_t overlap : {0, 1}) {
    v1::Job job = MakeJob({.epochs = 40, .every_updates = 5});
    v1::PseudoGradient* const contribution =
        job.mutable_algorithm()->mutable_contribution()->mutable_pseudo_gradient();
    contribution->set_local_steps(2);
    contribution->set_overlap_steps(overlap);
    Start(job);
    Worker worker = Join();
    int settled = 0, leases = 0;
    while (Next(&worker) == v1::Lease::GRANTED) {
      ++leases;
      if (worker.lease.settle()) {
        ++settled;
        EXPECT_EQ(worker.lease.first_version(), master_->Command().checkpoint_version());
      }
      DoLease({&worker});
      Exchange();
    }
    EXPECT_GT(leases, 2);
    EXPECT_EQ(settled > 0, overlap > 0);
  }
}

TEST_F(MasterTest, ServersLearnTheFastestWorkersSecondsPerStepWithAQuorum) {
  v1::Job job = MakeJob({.synchronous = false, .workers = 2});
  Start(job);
  EXPECT_EQ(master_->Command().step_seconds(), 0);
  job.mutable_algorithm()->mutable_consistency()->mutable_quorum()->set_minimum(1);
  job.mutable_algorithm()->mutable_contribution()->mutable_pseudo_gradient()->set_local_steps(4);
  Start(job);
  Worker fast = Join(), slow = Join();
  ASSERT_EQ(Next(&fast), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&slow), v1::Lease::GRANTED);
  EXPECT_EQ(master_->Command().step_seconds(), 0) << "no speed is known";
  slow.progress.set_steps(1);
  slow.progress.set_compute_seconds(2);
  ASSERT_EQ(Next(&slow), v1::Lease::GRANTED);
  EXPECT_EQ(master_->Command().step_seconds(), 2);
  fast.progress.set_steps(4);
  fast.progress.set_compute_seconds(1);
  ASSERT_EQ(Next(&fast), v1::Lease::GRANTED);
  const uint64_t generation = master_->Command().generation();
  EXPECT_EQ(master_->Command().step_seconds(), 0.25);
  fast.progress.set_compute_seconds(2);
  ASSERT_TRUE(Beat(fast).ok());
  EXPECT_EQ(master_->Command().step_seconds(), 0.5);
  EXPECT_EQ(master_->Command().generation(), generation);
}

// The answer when a waiting call is reconsidered, and whether the conditions have changed since.
TEST_F(MasterTest, WhatACallForALeaseWaitsForChangesItsConditions) {
  for (bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous, .workers = 2}));
    Worker first = Join();
    ASSERT_EQ(Ask(first, 0)->state(), v1::Lease::WAIT);
    EXPECT_TRUE(master_->leases().MayWait(RequestOf(first, 0)));
    JobLeases::Conditions before = master_->leases().conditions();
    Exchange();
    EXPECT_TRUE(master_->leases().conditions() == before) << "one worker still waits for the other";
    Worker second = Join();
    EXPECT_FALSE(master_->leases().conditions() == before) << "training begins";
    // In synchronous mode asking makes the plan, of which the shards have to hear.
    EXPECT_EQ(master_->GetLeaseAgain(RequestOf(first, 0))->state(),
              synchronous ? v1::Lease::WAIT : v1::Lease::GRANTED);
    before = master_->leases().conditions();
    EXPECT_EQ(master_->GetLeaseAgain(RequestOf(second, 0))->state(), v1::Lease::WAIT);
    Exchange();
    EXPECT_FALSE(master_->leases().conditions() == before) << "all shards know both";
    EXPECT_EQ(master_->GetLeaseAgain(RequestOf(first, 0))->state(), v1::Lease::GRANTED);
    EXPECT_EQ(master_->GetLeaseAgain(RequestOf(second, 0))->state(), v1::Lease::GRANTED);
    before = master_->leases().conditions();
    master_->Stop("enough");
    EXPECT_FALSE(master_->leases().conditions() == before);
    EXPECT_EQ(master_->GetLeaseAgain(RequestOf(second, 1))->state(), v1::Lease::FINISHED);
  }
}

TEST_F(MasterTest, ACallForALeaseThatWaitsKeepsNoLostWorkerAlive) {
  Start(MakeJob({.synchronous = false, .workers = 2}));
  Worker worker = Join();
  ASSERT_EQ(Ask(worker, 0)->state(), v1::Lease::WAIT);
  clock_.Advance(1000);
  EXPECT_EQ(master_->GetLeaseAgain(RequestOf(worker, 0))->state(), v1::Lease::WAIT);
  master_->Tick();
  EXPECT_EQ(master_->GetLeaseAgain(RequestOf(worker, 0)).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(MasterTest, LaterChangesDoNotHoldUpThoseWhoAreIn) {
  Start(MakeJob({.synchronous = false}));
  Worker first = Join();
  EXPECT_EQ(Next(&first), v1::Lease::GRANTED);
  Worker second = Join();
  EXPECT_EQ(Ask(first, 1)->state(), v1::Lease::GRANTED);
  EXPECT_EQ(Ask(second, 0)->state(), v1::Lease::WAIT);
}

TEST_F(MasterTest, ALeaseAskedForAgainIsTheSame) {
  for (bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous}));
    Worker worker = Join();
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    EXPECT_EQ(Ask(worker, 0)->SerializeAsString(), worker.lease.SerializeAsString());
    const v1::Lease first = worker.lease;
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    EXPECT_EQ(worker.lease.number(), 2u);
    EXPECT_NE(worker.lease.minibatches(0).SerializeAsString(), first.minibatches(0).SerializeAsString());
    EXPECT_EQ(Ask(worker, 1)->SerializeAsString(), worker.lease.SerializeAsString());
    EXPECT_EQ(Ask(worker, 0).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Ask(worker, 3).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(MasterTest, SynchronousMembersShareAPlanAndItsRoster) {
  Start(MakeJob({.workers = 2}));
  Worker first = Join();
  Worker second = Join();
  ASSERT_EQ(Next(&first), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&second), v1::Lease::GRANTED);
  const v1::ShardCommand command = master_->Command();
  ASSERT_EQ(command.rosters_size(), 1);
  EXPECT_EQ(command.rosters(0).members_size(), 2);
  EXPECT_EQ(first.lease.minibatches(0).spans(0).begin(), 0u);
  EXPECT_EQ(second.lease.minibatches(0).spans(0).begin(), 4u);
}

TEST_F(MasterTest, AJoinerTakesPartFromTheNextPlanOn) {
  Start(MakeJob({.epochs = 10}));
  Worker first = Join();
  ASSERT_EQ(Next(&first), v1::Lease::GRANTED);
  Worker second = Join();
  EXPECT_EQ(Next(&second), v1::Lease::WAIT);
  DoLease({&first});
  ASSERT_EQ(Next(&first), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&second), v1::Lease::GRANTED);
  EXPECT_EQ(second.lease.number(), 1u);
  EXPECT_EQ(second.lease.first_version(), 16u);
  EXPECT_EQ(first.lease.first_version(), 16u);
  EXPECT_EQ(second.lease.first_step(), 16u);
}

TEST_F(MasterTest, AbandonedPlanLeavesAnEmptyRosterThatShardsSkip) {
  Start(MakeJob({.epochs = 10}));
  Worker lost = Join();
  ASSERT_EQ(Next(&lost), v1::Lease::GRANTED);
  DoStep(&lost);
  Exchange();
  EXPECT_EQ(shards_[0].version(), 1u);
  clock_.Advance(11);
  master_->Tick();
  Worker next = Join();
  ASSERT_EQ(Next(&next), v1::Lease::GRANTED);
  EXPECT_EQ(next.lease.first_version(), 16u);
  EXPECT_EQ(next.lease.minibatches(0).spans(0).begin(), 4u) << "step 0 was applied: the shards said so";
  Exchange();
  EXPECT_EQ(shards_[0].version(), 16u);
}

}  // namespace
}  // namespace catchment
