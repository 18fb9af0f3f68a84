// A master with a standby, whose part the test plays: what waits for it, and what a new process continues
// from its copy.
#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "tests/server/host/master_host_fixture.h"

namespace catchment {
namespace {

using testing::Contains;
using testing::HasSubstr;

class MasterHostStandbyTest : public MasterHostTest {
 protected:
  MasterHostStandbyTest() : MasterHostTest("faults { standby: 1 }") {
    log_.Open();
    EXPECT_TRUE(master_->RegisterServer(Server1()).ok());
    const absl::StatusOr<v1::RegisterReply> me = master_->Register(Worker());
    EXPECT_TRUE(me.ok()) << me.status();
    if (me.ok()) me_ = *me;
  }

  // Takes over what the log has, as a standby does. Returns false if there was nothing.
  bool Replicate() {
    bool any = false;
    while (const std::optional<StandbyLog::Change> change = log_.Next()) {
      any = true;
      if (change->state) Take(log_.DescribeState(/*whole=*/false));
      log_.Acknowledge(change->part.number());
    }
    return any;
  }
  void Take(const std::vector<v1::StandbyPart>& parts) {
    for (const v1::StandbyPart& part : parts) {
      if (part.has_master()) copy_.copy.ParseFromString(part.master());
      if (part.has_evaluations()) copy_.evaluations.ParseFromString(part.evaluations());
    }
  }

  v1::GetLeaseRequest LeaseRequest(uint64_t after) const {
    v1::GetLeaseRequest request;
    request.set_worker(me_.worker());
    request.set_incarnation(me_.incarnation());
    request.set_after(after);
    return request;
  }
  // Returns the worker's first lease, as soon as the servers know the roster.
  v1::Lease FirstLease() {
    while (true) {
      Replicate();
      const absl::StatusOr<v1::Lease> lease = master_->GetLease(LeaseRequest(0));
      EXPECT_TRUE(lease.ok()) << lease.status();
      if (!lease.ok() || lease->state() == v1::Lease::GRANTED) return lease.value_or(v1::Lease());
      std::this_thread::yield();
    }
  }

  // Another process takes the place of the master, with the copy.
  void Continue() {
    master_.reset();
    // The log of the former process has ended; that of the new one does not wait.
    hosts_[0] = std::make_unique<ShardHost>(job_, layout_, 0, *MakeContents(job_, layout_, 0, "", nullptr),
                                            directory_ + "/checkpoints");
    copy_.epoch = 2;
    options_.Continue(copy_);
    master_ = *MasterHost::Create(options_, &layout_, hosts_[0].get(), &clock_, std::nullopt);
    master_->SetAddress(listeners_[0].address());
  }

  v1::RegisterReply me_;
  RunOptions::Restored copy_;
};

TEST_F(MasterHostStandbyTest, AnswersWaitForTheStandby) {
  std::atomic<int> committed = 0;
  master_->AfterCommit([&](bool ok) { committed += ok ? 1 : 100; });
  EXPECT_EQ(committed, 0);
  EXPECT_TRUE(Replicate());
  EXPECT_EQ(committed, 1);
  ASSERT_EQ(copy_.copy.master().membership().members_size(), 1);
  EXPECT_EQ(copy_.copy.master().membership().members(0).incarnation(), me_.incarnation());
  master_->AfterCommit([&](bool ok) { committed += ok ? 1 : 100; });
  EXPECT_EQ(committed, 2) << "nothing has changed";
}

// The rosters reach no server before, so no lease is granted.
TEST_F(MasterHostStandbyTest, CommandsWaitForTheStandby) {
  for (int i = 0; i < 1000; ++i) {
    const absl::StatusOr<v1::Lease> lease = master_->GetLease(LeaseRequest(0));
    ASSERT_TRUE(lease.ok()) << lease.status();
    ASSERT_EQ(lease->state(), v1::Lease::WAIT);
    std::this_thread::yield();
  }
  EXPECT_EQ(FirstLease().state(), v1::Lease::GRANTED);
}

TEST_F(MasterHostStandbyTest, OneImageServesAllCallsBeforeIt) {
  Replicate();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(master_->Register(Worker()).ok());
  int images = 0;
  while (const std::optional<StandbyLog::Change> change = log_.Next()) {
    ++images;
    Take(log_.DescribeState(/*whole=*/false));
  }
  EXPECT_EQ(images, 1);
  EXPECT_EQ(copy_.copy.master().membership().members_size(), 4);
}

// By the clock an image takes a tenth of a second, and the next one is due about a second later.
TEST_F(MasterHostStandbyTest, ChangesWaitForTheNextImageIfOneTakesLong) {
  Replicate();
  ASSERT_TRUE(master_->Register(Worker()).ok());
  ASSERT_TRUE(log_.Next().has_value());
  clock_.SetStep(0.05);
  Take(log_.DescribeState(/*whole=*/false));
  clock_.SetStep(0);
  ASSERT_TRUE(master_->Register(Worker()).ok());
  std::atomic<int> committed = 0;
  master_->AfterCommit([&](bool ok) { committed += ok ? 1 : 100; });
  EXPECT_FALSE(Replicate()) << "no image is due";
  EXPECT_EQ(committed, 0);
  clock_.Set(clock_.Now() + 3);
  while (committed == 0) {
    Replicate();
    std::this_thread::yield();
  }
  EXPECT_EQ(committed, 1);
  EXPECT_EQ(copy_.copy.master().membership().members_size(), 3);
}

TEST_F(MasterHostStandbyTest, HeartbeatsAloneAreNotCopied) {
  FirstLease();
  while (Replicate()) std::this_thread::yield();
  v1::HeartbeatRequest request;
  request.set_worker(me_.worker());
  request.set_incarnation(me_.incarnation());
  ASSERT_TRUE(master_->Heartbeat(request).ok());
  EXPECT_FALSE(Replicate());
}

TEST_F(MasterHostStandbyTest, EndOfTheRunAnswersThoseWhoWait) {
  std::atomic<int> refused = 0;
  master_->AfterCommit([&](bool ok) { refused += ok ? 100 : 1; });
  log_.End();
  EXPECT_EQ(refused, 1);
  master_->AfterCommit([&](bool ok) { refused += ok ? 100 : 1; });
  EXPECT_EQ(refused, 2);
}

TEST_F(MasterHostStandbyTest, NewProcessContinuesTheRun) {
  const v1::Lease lease = FirstLease();
  Replicate();
  Continue();
  EXPECT_EQ(master_->GetJob()->run_id(), kRunId);
  EXPECT_EQ(master_->GetJob()->servers(1), listeners_[1].address());
  // The member, its lease and server 1 are known.
  const absl::StatusOr<v1::Lease> again = master_->GetLease(LeaseRequest(0));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->SerializeAsString(), lease.SerializeAsString());
  v1::RegisterServerRequest server = Server1();
  server.mutable_run()->set_id(kRunId);
  server.set_epoch(1);
  const absl::StatusOr<v1::RegisterServerReply> known = master_->RegisterServer(server);
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_FALSE(known->go_back());
  EXPECT_EQ(known->keeps_epoch(), 2u) << "of shard 0";
  const v1::JobStatus status = master_->Status();
  EXPECT_EQ(status.phase(), v1::JobStatus::TRAINING);
  EXPECT_EQ(status.recoveries(), 1u);
  EXPECT_EQ(status.updates_computed_again(), 0u);
  EXPECT_THAT(status.events(),
              Contains(HasSubstr("the master was lost, and has been restored at version 0 from its standby, "
                                 "server 1; no update is computed again")));
}

// The former process may have registered members, and offered epochs, after it was copied for the last time.
TEST_F(MasterHostStandbyTest, NewProcessGivesNeitherIncarnationsNorEpochsTwice) {
  Replicate();
  const absl::StatusOr<v1::RegisterReply> lost = master_->Register(Worker());
  ASSERT_TRUE(lost.ok()) << lost.status();
  v1::RegisterServerRequest killed = Server1();
  killed.set_server_instance(kInstance + 2);
  const uint64_t offered = master_->RegisterServer(killed)->restore_epoch();
  EXPECT_GT(offered, 1u);
  options_.first_incarnation = lost->incarnation() + 1000;  // by the time of day
  Continue();
  v1::HeartbeatRequest request;
  request.set_worker(lost->worker());
  request.set_incarnation(lost->incarnation());
  EXPECT_TRUE(absl::IsNotFound(master_->Heartbeat(request).status())) << "it must register again";
  EXPECT_GT(master_->Register(Worker())->incarnation(), lost->incarnation());
  killed.set_server_instance(kInstance + 3);
  EXPECT_GT(master_->RegisterServer(killed)->restore_epoch(), offered);
}

TEST_F(MasterHostStandbyTest, ProcessThatWasReplacedEnds) {
  master_->OnReplaced(absl::FailedPreconditionError("another process has taken over shard 0"));
  EXPECT_TRUE(absl::IsFailedPrecondition(master_->Wait()));
}

}  // namespace
}  // namespace catchment
