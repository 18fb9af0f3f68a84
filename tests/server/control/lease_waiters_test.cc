#include "server/control/lease_waiters.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace catchment {
namespace {

v1::Reply LeaseIn(v1::Lease::State state) {
  v1::Reply reply;
  reply.mutable_get_lease()->set_state(state);
  return reply;
}

JobLeases::Conditions Acknowledged(uint64_t generation) {
  return {.state = JobStateMachine::State::kTraining, .acknowledged = generation};
}

// Workers of one master that the test plays.
class LeaseWaitersTest : public testing::Test {
 protected:
  void Wait(uint64_t incarnation, double until, const JobLeases::Conditions& conditions) {
    v1::GetLeaseRequest request;
    request.set_incarnation(incarnation);
    std::optional<ReadyReply> older =
        waiters_.Add({request, until, LeaseIn(v1::Lease::WAIT), Note(incarnation)}, conditions);
    if (older) older->respond(std::move(older->reply));
  }

  Respond Note(uint64_t incarnation) {
    return [this, incarnation](const absl::StatusOr<v1::Reply>& reply) {
      answers_[incarnation].push_back(reply.ok() ? v1::Lease::State_Name(reply->get_lease().state())
                                                 : std::string(reply.status().message()));
    };
  }

  void Review(const JobLeases::Conditions& conditions, double now) {
    for (ReadyReply& ready : waiters_.Review(conditions, now, ask_)) {
      ready.respond(std::move(ready.reply));
    }
  }

  std::map<uint64_t, v1::Reply> leases_;  // what the master has for each; none: an error
  int asked_ = 0;
  const LeaseWaiters::Ask ask_ = [this](const v1::GetLeaseRequest& request) -> absl::StatusOr<v1::Reply> {
    ++asked_;
    const auto found = leases_.find(request.incarnation());
    if (found == leases_.end()) return absl::NotFoundError("no member");
    return found->second;
  };
  LeaseWaiters waiters_;
  std::map<uint64_t, std::vector<std::string>> answers_;
  using Answers = std::map<uint64_t, std::vector<std::string>>;
};

TEST_F(LeaseWaitersTest, AreAskedForAgainWhenConditionsChangeAndOnlyThen) {
  leases_ = {{1, LeaseIn(v1::Lease::WAIT)}, {2, LeaseIn(v1::Lease::WAIT)}};
  Review(Acknowledged(5), 0);
  Wait(1, 10, Acknowledged(5));
  Wait(2, 10, Acknowledged(5));
  EXPECT_FALSE(waiters_.NeedReview(Acknowledged(5)));
  Review(Acknowledged(5), 1);
  EXPECT_EQ(asked_, 0);
  EXPECT_TRUE(waiters_.NeedReview(Acknowledged(6)));
  leases_[2] = LeaseIn(v1::Lease::GRANTED);
  Review(Acknowledged(6), 2);
  EXPECT_EQ(asked_, 2);
  EXPECT_EQ(answers_, (Answers{{2, {"GRANTED"}}}));
  EXPECT_EQ(waiters_.size(), 1u);
  leases_[1] = LeaseIn(v1::Lease::FINISHED);
  Review({.state = JobStateMachine::State::kLeaving}, 3);
  EXPECT_EQ(answers_, (Answers{{1, {"FINISHED"}}, {2, {"GRANTED"}}}));
  EXPECT_FALSE(waiters_.NeedReview(Acknowledged(7))) << "no call waits";
}

TEST_F(LeaseWaitersTest, AreAnsweredWhenTheirTimeIsOver) {
  leases_ = {{1, LeaseIn(v1::Lease::WAIT)}};
  Review(Acknowledged(5), 0);
  Wait(1, 10, Acknowledged(5));
  Wait(2, 12, Acknowledged(5));
  Review(Acknowledged(5), 9.9);
  EXPECT_TRUE(answers_.empty());
  Review(Acknowledged(5), 10);
  EXPECT_EQ(answers_, (Answers{{1, {"WAIT"}}}));
  Review(Acknowledged(6), 11);
  EXPECT_EQ(answers_[2], std::vector<std::string>{"no member"}) << "an error is an answer, too";
}

TEST_F(LeaseWaitersTest, ALaterCallOfAWorkerAnswersTheOneBefore) {
  leases_ = {{1, LeaseIn(v1::Lease::WAIT)}};
  Wait(1, 10, {});
  Wait(1, 20, {});
  EXPECT_EQ(answers_, (Answers{{1, {"WAIT"}}}));
  EXPECT_EQ(waiters_.size(), 1u);
  Review({}, 15);
  EXPECT_EQ(answers_[1].size(), 1u);
}

// The conditions change from A to B, in which one comes to wait, and back to A before anybody is asked for.
TEST_F(LeaseWaitersTest, ConditionsThatChangeBackAreNoticed) {
  leases_ = {{1, LeaseIn(v1::Lease::GRANTED)}};
  Review(Acknowledged(5), 0);
  Wait(1, 10, Acknowledged(6));
  EXPECT_TRUE(waiters_.NeedReview(Acknowledged(5)));
  Review(Acknowledged(5), 1);
  EXPECT_EQ(answers_, (Answers{{1, {"GRANTED"}}}));
}

TEST_F(LeaseWaitersTest, TakeAllAnswersEveryone) {
  leases_ = {{1, LeaseIn(v1::Lease::FINISHED)}, {2, LeaseIn(v1::Lease::WAIT)}};
  Wait(1, 10, {});
  Wait(2, 10, {});
  for (ReadyReply& ready : waiters_.TakeAll(ask_)) ready.respond(std::move(ready.reply));
  EXPECT_EQ(answers_, (Answers{{1, {"FINISHED"}}, {2, {"WAIT"}}}));
  EXPECT_EQ(waiters_.size(), 0u);
}

}  // namespace
}  // namespace catchment
