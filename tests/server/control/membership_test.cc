#include "server/control/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace catchment {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::RegisterRequest From(const std::string& host, v1::Role role = v1::WORKER) {
  v1::RegisterRequest request;
  request.set_role(role);
  request.set_host(host);
  request.set_pid(42);
  return request;
}

class MembershipTest : public ::testing::Test {
 protected:
  std::vector<std::string> Fresh() {
    std::vector<std::string> texts;
    for (const JobEvent& event : events_.TakeFresh()) texts.push_back(event.text);
    return texts;
  }

  EventLog events_;
  Membership members_{10, 1, &events_};
};

TEST_F(MembershipTest, GivesTheLowestFreeIndexAndFreshIncarnations) {
  EXPECT_EQ(members_.Register(From("a"), 0)->index, 0u);
  EXPECT_EQ(members_.Register(From("b"), 0)->index, 1u);
  EXPECT_EQ(members_.Register(From("c"), 0)->index, 2u);
  members_.Remove(v1::WORKER, 1);
  EXPECT_EQ(members_.Register(From("d"), 0)->index, 3u) << "reports may still be of the one that had index 1";
  members_.FreeIndex(1);
  const Member* member = members_.Register(From("e"), 0);
  EXPECT_EQ(member->index, 1u);
  EXPECT_EQ(member->incarnation, 5u);
  EXPECT_EQ(members_.next_incarnation(), 6u);
}

// Indices that were given back only later must not leave a group of workers without any.
TEST_F(MembershipTest, KeepsGroupsOfWorkersOfEqualSize) {
  Membership members(10, 1, &events_, /*groups=*/2);
  members.Register(From("a"), 0);
  EXPECT_EQ(members.Register(From("b"), 0)->index, 1u);
  members.Remove(v1::WORKER, 1);
  EXPECT_EQ(members.Register(From("c"), 0)->index, 3u) << "index 2 is in the group of index 0";
  EXPECT_EQ(members.Register(From("d"), 0)->index, 2u);
  members.FreeIndex(1);
  EXPECT_EQ(members.Register(From("e"), 0)->index, 1u);
  EXPECT_EQ(members.Register(From("f"), 0)->index, 4u);
  EXPECT_EQ(members.Register(From("g", v1::EVALUATOR), 0)->index, 0u);
}

TEST_F(MembershipTest, HasRoomForAHundredEvaluators) {
  for (uint32_t i = 0; i < Membership::kMaxEvaluators; ++i) {
    EXPECT_TRUE(members_.HasRoom(v1::EVALUATOR));
    members_.Register(From("a", v1::EVALUATOR), 0);
  }
  EXPECT_FALSE(members_.HasRoom(v1::EVALUATOR));
  EXPECT_TRUE(members_.HasRoom(v1::WORKER));
  members_.Remove(v1::EVALUATOR, 7);
  EXPECT_TRUE(members_.HasRoom(v1::EVALUATOR));
}

TEST_F(MembershipTest, CountsMembersThatComeLeaveAndAreLost) {
  for (int i = 0; i < 3; ++i) members_.Register(From("a"), i);
  members_.Register(From("b", v1::EVALUATOR), 2);
  EXPECT_EQ(members_.num_workers(), 3);
  EXPECT_EQ(members_.num_evaluators(), 1);
  members_.Remove(v1::WORKER, 1);
  members_.Remove(v1::WORKER, 1);
  EXPECT_EQ(members_.num_workers(), 2);
  EXPECT_EQ(members_.TakeExpired(11).size(), 1u) << "worker 0 was heard of at 0";
  EXPECT_EQ(members_.num_workers(), 1);
  EXPECT_EQ(members_.num_evaluators(), 1);
  members_.Remove(v1::EVALUATOR, 0);
  EXPECT_EQ(members_.num_evaluators(), 0);
  EXPECT_EQ(members_.workers().size(), 1u);
}

TEST_F(MembershipTest, ListsTheIncarnationsOfWorkersAsTheyComeAndGo) {
  EXPECT_THAT(members_.worker_incarnations(), IsEmpty());
  members_.Register(From("a"), 0);
  members_.Register(From("b", v1::EVALUATOR), 0);
  members_.Register(From("c"), 0);
  EXPECT_THAT(members_.worker_incarnations(), ElementsAre(1, 3));
  members_.Register(From("d"), 5);
  EXPECT_THAT(members_.worker_incarnations(), ElementsAre(1, 3, 4));
  members_.Remove(v1::WORKER, 0);
  EXPECT_THAT(members_.worker_incarnations(), ElementsAre(3, 4));
  members_.TakeExpired(11);
  EXPECT_THAT(members_.worker_incarnations(), ElementsAre(4)) << "the one of incarnation 3 was heard of at 0";
  members_.FreeIndex(0);
  members_.Register(From("e"), 11);
  EXPECT_THAT(members_.worker_incarnations(), ElementsAre(5, 4)) << "by index";
}

TEST_F(MembershipTest, EvaluatorsHaveIndicesOfTheirOwnButShareIncarnations) {
  EXPECT_EQ(members_.Register(From("a"), 0)->incarnation, 1u);
  const Member* evaluator = members_.Register(From("a", v1::EVALUATOR), 0);
  EXPECT_EQ(evaluator->index, 0u);
  EXPECT_EQ(evaluator->incarnation, 2u);
  EXPECT_EQ(members_.num_workers(), 1);
  EXPECT_EQ(members_.num_evaluators(), 1);
  EXPECT_TRUE(members_.RenewEvaluator(2, 0).ok());
  EXPECT_EQ(members_.RenewEvaluator(1, 0).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(MembershipTest, SilentMembersExpireAndHeardOnesDoNot) {
  members_.Register(From("a"), 0);
  members_.Register(From("b"), 0);
  ASSERT_TRUE(members_.Renew(v1::WORKER, 0, 1, 9).ok());
  EXPECT_TRUE(members_.TakeExpired(10).empty());
  const std::vector<Member> expired = members_.TakeExpired(10.5);
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].index, 1u);
  EXPECT_EQ(events_.last().back(),
            "worker 1 (b:42) sent no heartbeat for 10.5 s: considered lost; "
            "its samples are assigned to other workers");
}

// A master that is stopped for longer than a lease hears no one, and must not expel all of its workers for
// it.
TEST_F(MembershipTest, DeadlinesAreExtendedByAPauseOfTheMaster) {
  members_.Register(From("a"), 0);
  members_.Register(From("b"), 0);
  ASSERT_TRUE(members_.Renew(v1::WORKER, 0, 1, 30).ok());  // its heartbeat waited in the socket
  members_.ExtendDeadlines(29, 30);
  EXPECT_TRUE(members_.TakeExpired(39).empty());
  EXPECT_EQ(members_.TakeExpired(39.5).size(), 1u)
      << "worker 1 is silent for longer than the pause and a lease";
  EXPECT_EQ(members_.TakeExpired(40.5).size(), 1u)
      << "worker 0 gets no more than a lease from its last heartbeat";
}

TEST_F(MembershipTest, DisconnectedWorkerIsLostSoonUnlessItIsHeardOf) {
  members_.Register(From("a"), 0);
  members_.Register(From("b"), 0);
  members_.SetDisconnected(0, 1, /*server=*/3, /*silence_limit=*/1.5, 1);
  EXPECT_EQ(members_.num_connected_workers(), 1);
  members_.SetDisconnected(1, 2, 3, 1.5, 1);
  EXPECT_EQ(members_.num_connected_workers(), 0);
  ASSERT_TRUE(members_.Renew(v1::WORKER, 0, 1, 2).ok());
  EXPECT_EQ(members_.num_connected_workers(), 1);
  EXPECT_EQ(members_.num_workers(), 2);
  members_.SetDisconnected(1, 2, 0, 1.5, 2.5);
  EXPECT_TRUE(members_.TakeExpired(2.5).empty());
  const std::vector<Member> lost = members_.TakeExpired(2.6);
  ASSERT_EQ(lost.size(), 1u) << "later reports of the same connection extend nothing";
  EXPECT_EQ(lost[0].index, 1u);
  EXPECT_EQ(events_.last().back(),
            "worker 1 (b:42) lost its connection to server 3 and sent no heartbeat for 1.6 s: considered "
            "lost; its samples are assigned to other workers");
  EXPECT_TRUE(members_.TakeExpired(12).empty()) << "worker 0 was heard of, and has its whole lease again";
  EXPECT_EQ(members_.TakeExpired(12.1).size(), 1u);
}

TEST_F(MembershipTest, BrokenConnectionOfAnotherIncarnationChangesNothing) {
  members_.Register(From("a"), 0);
  members_.SetDisconnected(0, 2, 0, 1.5, 0);
  members_.SetDisconnected(7, 1, 0, 1.5, 0);
  EXPECT_TRUE(members_.TakeExpired(10).empty());
}

TEST_F(MembershipTest, DisconnectedWorkerHasNoMoreThanItsLeaseAndThePausesOfTheMaster) {
  members_.Register(From("a"), 0);
  members_.Register(From("b"), 0);
  members_.SetDisconnected(0, 1, 0, /*silence_limit=*/100, 1);
  members_.SetDisconnected(1, 2, 0, /*silence_limit=*/1.5, 1);
  members_.ExtendDeadlines(5, 7);
  EXPECT_TRUE(members_.TakeExpired(7.5).empty());
  EXPECT_EQ(members_.TakeExpired(7.6).size(), 1u) << "silent for longer than the pause and the limit";
  EXPECT_TRUE(members_.TakeExpired(15).empty());
  EXPECT_EQ(members_.TakeExpired(15.1).size(), 1u);
}

TEST_F(MembershipTest, ALostWorkerIsUnknownAndMayComeBack) {
  members_.Register(From("a"), 0);
  members_.TakeExpired(11);
  members_.FreeIndex(0);
  const absl::Status status = members_.Renew(v1::WORKER, 0, 1, 12).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("register again"));
  EXPECT_EQ(members_.Register(From("a"), 12)->incarnation, 2u);
  EXPECT_FALSE(members_.Renew(v1::WORKER, 0, 1, 12).ok()) << "the old incarnation stays unknown";
  EXPECT_TRUE(members_.Renew(v1::WORKER, 0, 2, 12).ok());
}

TEST_F(MembershipTest, TellsOfJoins) {
  members_.Register(From("host"), 0);
  EXPECT_THAT(events_.last(), Contains("worker 0 (host:42) joined"));
  EXPECT_EQ(Fresh().size(), 1u);
  EXPECT_TRUE(Fresh().empty());
}

TEST_F(MembershipTest, EventsOfMembersAreLimitedAndThoseOfTheMasterAreNot) {
  const auto burst = static_cast<size_t>(EventLog::kBurst);
  for (size_t i = 0; i < burst + 50; ++i) events_.AddOfMember("worker 0 left", 100);
  EXPECT_EQ(Fresh().size(), burst);
  events_.Tick(100.5);
  events_.Add("checkpoint 3 is saved");
  EXPECT_THAT(Fresh(), ElementsAre("checkpoint 3 is saved"));
  events_.Tick(101);
  events_.AddOfMember("worker 0 left", 101.5);
  EXPECT_THAT(Fresh(), ElementsAre("50 further events of members are left out: there were more than "
                                   "2000 at once and then 1 a second"));
  for (int i = 0; i < 3; ++i) events_.AddOfMember("worker 0 joined", 102.5);
  const std::vector<std::string> fresh = Fresh();
  ASSERT_EQ(fresh.size(), 2u);
  EXPECT_THAT(fresh[0], HasSubstr("1 further events"));
  EXPECT_EQ(fresh[1], "worker 0 joined");
}

TEST_F(MembershipTest, AJobsOwnMembersHaveRoomForTheirEvents) {
  EventLog events(10'000);
  for (int i = 0; i < 20'000; ++i) events.AddOfMember("worker 0 joined", 0);
  EXPECT_EQ(events.TakeFresh().size(), 20'000u);
}

TEST_F(MembershipTest, AnEventIsOneLine) {
  events_.Add("worker 0 failed: a\nE20261125 10:00:00 master_host.cc:1] the job failed\u202e");
  EXPECT_THAT(events_.last(),
              ElementsAre("worker 0 failed: a\\nE20261125 10:00:00 master_host.cc:1] the job failed\\u202e"));
  EXPECT_EQ(Fresh().front(), events_.last().front());
}

TEST_F(MembershipTest, TheLossOfAWorkerNamesIt) {
  members_.Register(From("a"), 0);
  members_.Register(From("b"), 0);
  members_.Register(From("c", v1::EVALUATOR), 0);
  ASSERT_TRUE(members_.Renew(v1::WORKER, 0, 1, 8).ok());
  events_.TakeFresh();
  EXPECT_EQ(members_.TakeExpired(11).size(), 2u);
  const std::vector<JobEvent> fresh = events_.TakeFresh();
  ASSERT_EQ(fresh.size(), 2u);
  EXPECT_EQ(fresh[0].kind, JobEvent::kLost);
  EXPECT_EQ(fresh[0].worker, 1u);
  EXPECT_EQ(fresh[1].kind, "") << "of an evaluator";
}

TEST_F(MembershipTest, KeepsOnlyTheLastEvents) {
  for (int i = 0; i < 100; ++i) events_.Add(std::to_string(i));
  EXPECT_EQ(events_.last().size(), EventLog::kKept);
  EXPECT_EQ(events_.last().back(), "99");
}

}  // namespace
}  // namespace catchment
