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
  // A worker has registered, whose reply waits for the standby.
  MasterHostStandbyTest() : MasterHostTest("faults { standby: 1 }") {
    log_.Open();
    EXPECT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
    Begin(Worker());
  }

  // Makes a call, whose reply is counted when it arrives.
  template <typename Request>
  void Begin(Request request) {
    master_->Answer(MakeCall(std::move(request)), [this](const absl::StatusOr<v1::Reply>& reply) {
      ++(reply.ok() ? replies_ : refused_);
      if (reply.ok() && reply->has_get_lease()) granted_ += reply->get_lease().state() == v1::Lease::GRANTED;
    });
  }

  bool Replicate() override {
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
    request.set_incarnation(kFirstIncarnation);
    request.set_after(after);
    return request;
  }
  // Returns the worker's first lease, as soon as the servers know the roster.
  v1::Lease FirstLease() {
    while (true) {
      const absl::StatusOr<v1::Lease> lease = Ask<v1::Lease>(LeaseRequest(0));
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

  std::atomic<int> replies_ = 0, refused_ = 0;
  std::atomic<int> granted_ = 0;  // leases
  RunOptions::Restored copy_;
};

TEST_F(MasterHostStandbyTest, AnswersWaitForTheStandby) {
  EXPECT_EQ(replies_, 0);
  EXPECT_TRUE(Replicate());
  EXPECT_EQ(replies_, 1);
  ASSERT_EQ(copy_.copy.master().membership().members_size(), 1);
  EXPECT_EQ(copy_.copy.master().membership().members(0).incarnation(), kFirstIncarnation);
  Begin(v1::GetEvaluationRequest());
  EXPECT_EQ(refused_, 1) << "nothing has changed";
}

// The rosters reach no server before, so no lease is granted.
TEST_F(MasterHostStandbyTest, CommandsWaitForTheStandby) {
  constexpr int kCalls = 1000;
  for (int i = 0; i < kCalls; ++i) {
    Begin(LeaseRequest(0));
    std::this_thread::yield();
  }
  EXPECT_EQ(replies_, 0);
  while (replies_ < 1 + kCalls) Replicate();
  EXPECT_EQ(granted_, 0);
  EXPECT_EQ(FirstLease().state(), v1::Lease::GRANTED);
}

TEST_F(MasterHostStandbyTest, OneImageServesAllCallsBeforeIt) {
  Replicate();
  for (int i = 0; i < 3; ++i) Begin(Worker());
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
  Begin(Worker());
  ASSERT_TRUE(log_.Next().has_value());
  clock_.SetStep(0.05);
  Take(log_.DescribeState(/*whole=*/false));
  clock_.SetStep(0);
  Begin(Worker());
  EXPECT_FALSE(Replicate()) << "no image is due";
  EXPECT_EQ(replies_, 1);
  clock_.Advance(3);
  while (replies_ < 3) {
    Replicate();
    std::this_thread::yield();
  }
  EXPECT_EQ(refused_, 0);
  EXPECT_EQ(copy_.copy.master().membership().members_size(), 3);
}

TEST_F(MasterHostStandbyTest, HeartbeatsAloneAreNotCopied) {
  FirstLease();
  while (Replicate()) std::this_thread::yield();
  v1::HeartbeatRequest request;
  request.set_incarnation(kFirstIncarnation);
  ASSERT_TRUE(Ask<v1::HeartbeatReply>(request).ok());
  EXPECT_FALSE(Replicate());
}

TEST_F(MasterHostStandbyTest, EndOfTheRunAnswersThoseWhoWait) {
  log_.End();
  EXPECT_EQ(refused_, 1);
  Begin(Worker());
  EXPECT_EQ(refused_, 2);
  EXPECT_EQ(replies_, 0);
}

TEST_F(MasterHostStandbyTest, NewProcessContinuesTheRun) {
  const v1::Lease lease = FirstLease();
  Continue();
  EXPECT_EQ(Ask<v1::GetJobReply>(v1::GetJobRequest())->run_id(), kRunId);
  EXPECT_EQ(Ask<v1::GetJobReply>(v1::GetJobRequest())->servers(1), listeners_[1].address());
  // The member, its lease and server 1 are known.
  const absl::StatusOr<v1::Lease> again = Ask<v1::Lease>(LeaseRequest(0));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->SerializeAsString(), lease.SerializeAsString());
  v1::RegisterServerRequest server = Server1();
  server.mutable_run()->set_id(kRunId);
  server.set_epoch(1);
  const absl::StatusOr<v1::RegisterServerReply> known = Ask<v1::RegisterServerReply>(server);
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
  Begin(Worker());
  const uint64_t lost = kFirstIncarnation + 1;
  v1::RegisterServerRequest killed = Server1();
  killed.set_server_instance(kInstance + 2);
  const uint64_t offered = Ask<v1::RegisterServerReply>(killed)->restore_epoch();
  EXPECT_GT(offered, 1u);
  options_.first_incarnation = lost + 1000;  // by the time of day
  Continue();
  v1::HeartbeatRequest request;
  request.set_worker(1);
  request.set_incarnation(lost);
  EXPECT_TRUE(absl::IsNotFound(Ask<v1::HeartbeatReply>(request).status())) << "it must register again";
  EXPECT_GT(Ask<v1::RegisterReply>(Worker())->incarnation(), lost);
  killed.set_server_instance(kInstance + 3);
  EXPECT_GT(Ask<v1::RegisterServerReply>(killed)->restore_epoch(), offered);
}

TEST_F(MasterHostStandbyTest, ProcessThatWasReplacedEnds) {
  master_->OnReplaced(absl::FailedPreconditionError("another process has taken over shard 0"));
  EXPECT_TRUE(absl::IsFailedPrecondition(master_->Wait()));
}

}  // namespace
}  // namespace catchment
