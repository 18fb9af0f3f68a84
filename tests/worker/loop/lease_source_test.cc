// LeaseSource against a master that the test plays, over gRPC.
#include "worker/loop/lease_source.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "tests/common/net/scripted_master.h"
#include "worker/loop/master_leases.h"

namespace catchment {
namespace {

class LeaseSourceTest : public testing::Test {
 protected:
  LeaseSourceTest() {
    master_.get_lease.Hold();
    client_ = std::make_unique<MasterClient>(master_.address(), grpc::InsecureChannelCredentials(),
                                             /*give_up_seconds=*/600, &clock_, &stop_);
    calls_ = std::make_unique<MasterLeases>(client_.get(), &stop_);
    source_ = std::make_unique<LeaseSource>(3, 7, calls_.get(), [this] {
      MutexLock lock(&mu_);
      return progress_;
    });
  }

  static v1::Lease Granted(uint64_t number) {
    v1::Lease lease;
    lease.set_state(v1::Lease::GRANTED);
    lease.set_number(number);
    v1::SampleSpan* span = lease.add_minibatches()->add_spans();
    span->set_end(5);
    return lease;
  }
  static v1::Lease Wait(double retry_seconds) {
    v1::Lease lease;
    lease.set_state(v1::Lease::WAIT);
    lease.set_retry_seconds(retry_seconds);
    return lease;
  }
  void SetProgress(uint64_t lease, uint64_t steps) {
    MutexLock lock(&mu_);
    progress_.set_lease(lease);
    progress_.set_lease_steps(steps);
  }

  const SteadyClock clock_;
  StopFlag stop_;
  Mutex mu_;
  v1::Progress progress_ ABSL_GUARDED_BY(mu_);
  ScriptedMaster master_;
  std::unique_ptr<MasterClient> client_;
  std::unique_ptr<MasterLeases> calls_;
  std::unique_ptr<LeaseSource> source_;
};

TEST_F(LeaseSourceTest, LetsItsCallsWaitAtTheMaster) {
  master_.get_lease.Queue({Wait(0.001), Granted(1)});
  const auto plan = source_->Next();
  ASSERT_TRUE(plan.ok() && plan->has_value()) << plan.status();
  EXPECT_EQ(LeaseSource::PlaceOf((*plan)->tag).lease, 1u);
  for (const v1::GetLeaseRequest& request : master_.get_lease.Await(2)) {
    EXPECT_GT(request.wait_seconds(), 0);
    EXPECT_EQ(request.incarnation(), 7u);
    EXPECT_EQ(request.after(), 0u);
  }
}

TEST_F(LeaseSourceTest, MakesOnePlanOfEachRequestOfTheMaster) {
  master_.get_lease.Queue({Granted(1)});
  v1::Lease save = Wait(0.001);
  save.set_save_state(12);
  master_.get_lease.Queue({save, save});
  v1::Lease flush = Wait(0.001);
  flush.set_flush(true);
  master_.get_lease.Queue({flush, flush});
  save.set_save_state(13);
  master_.get_lease.Queue({save});
  v1::Lease stopped;
  stopped.set_state(v1::Lease::FINISHED);
  stopped.set_stopped(true);
  master_.get_lease.Queue({stopped, stopped});
  SetProgress(1, 1);
  std::vector<uint64_t> tags;
  while (true) {
    const auto plan = source_->Next();
    ASSERT_TRUE(plan.ok()) << plan.status();
    if (!plan->has_value()) break;
    tags.push_back((*plan)->tag);
  }
  ASSERT_EQ(tags.size(), 5u);
  EXPECT_FALSE(LeaseSource::IsRequest(tags[0]));
  EXPECT_EQ(LeaseSource::CheckpointOf(tags[0]), 0u);
  EXPECT_EQ(LeaseSource::CheckpointOf(tags[1]), 12u);
  EXPECT_EQ(tags[2], LeaseSource::kFlush);
  EXPECT_EQ(LeaseSource::CheckpointOf(tags[2]), 0u);
  EXPECT_EQ(LeaseSource::CheckpointOf(tags[3]), 13u);
  EXPECT_EQ(tags[4], LeaseSource::kStopped);
  for (int i = 1; i < 5; ++i) EXPECT_TRUE(LeaseSource::IsRequest(tags[i]));
}

TEST_F(LeaseSourceTest, StepsHaveTheirPlaceInTheBudgetAndTheLocalStepsOfTheLease) {
  v1::Lease lease = Granted(1);
  lease.set_total_samples(400);
  lease.set_local_steps(6);
  v1::SampleSpan* const next_epoch = lease.mutable_minibatches(0)->add_spans();
  next_epoch->set_epoch(1);
  next_epoch->set_end(3);
  lease.mutable_minibatches(0)->mutable_spans(0)->set_begin(2);
  master_.get_lease.Queue({lease});
  const auto plan = source_->Next();
  ASSERT_TRUE(plan.ok() && plan->has_value()) << plan.status();
  const Algorithm::Step first = source_->StepOf((*plan)->tag, (*plan)->spans, /*train_samples=*/100);
  EXPECT_EQ(first.samples, 6u);
  EXPECT_EQ(first.local_steps, 6u);
  EXPECT_DOUBLE_EQ(first.progress, 0.005);
  const Algorithm::Step later = source_->StepOf((*plan)->tag, {{2, 50, 60}}, /*train_samples=*/100);
  EXPECT_DOUBLE_EQ(later.progress, 0.625);
  EXPECT_EQ(source_->StepOf((*plan)->tag, {}, /*train_samples=*/100).samples, 0u);
}

TEST_F(LeaseSourceTest, ACallThatWaitsIsBrokenOffWhenTheWorkerIsToStop) {
  std::thread next([this] {
    const auto plan = source_->Next();
    EXPECT_TRUE(plan.ok()) << plan.status();
    EXPECT_FALSE(plan->has_value());
  });
  master_.get_lease.Await(1);
  stop_.Set();
  next.join();
}

// The pause that the master asks for is longer than the test may take.
TEST_F(LeaseSourceTest, AsksAgainAsSoonAsTheLastStepIsDone) {
  master_.get_lease.Queue({Granted(1), Wait(1e6), Granted(2)});
  ASSERT_TRUE(source_->Next().ok());
  std::thread next([this] {
    const auto plan = source_->Next();
    ASSERT_TRUE(plan.ok() && plan->has_value()) << plan.status();
    EXPECT_EQ(LeaseSource::PlaceOf((*plan)->tag).lease, 2u);
  });
  master_.get_lease.Await(2);
  SetProgress(1, 1);
  next.join();
  EXPECT_EQ(master_.get_lease.Await(3)[2].progress().lease_steps(), 1u);
}

}  // namespace
}  // namespace catchment
