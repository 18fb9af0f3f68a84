#include "server/shard/group.h"

#include <gtest/gtest.h>

namespace catchment {
namespace {

WaitingContribution From(uint32_t worker, uint64_t incarnation, uint64_t sequence, uint64_t connection = 0) {
  return {.envelope = {
              .worker = worker, .incarnation = incarnation, .connection = connection, .sequence = sequence}};
}

// "worker/incarnation/sequence ..."
std::string Waiting(Group* group) {
  std::string text;
  for (const WaitingContribution& waiting : group->waiting()) {
    const Envelope& envelope = waiting.envelope;
    text += std::to_string(envelope.worker) + "/" + std::to_string(envelope.incarnation) + "/" +
            std::to_string(envelope.sequence) + " ";
  }
  return text;
}

std::string Arrived(const Group& group) {
  std::string text;
  for (const Gate::Arrival& arrival : group.arrived()) {
    text += std::to_string(arrival.worker) + "/" + std::to_string(arrival.incarnation) + " ";
  }
  return text;
}

TEST(GroupTest, ContributionsWaitInWorkerOrder) {
  Group group(7);
  EXPECT_EQ(group.base(), 7u);
  for (uint32_t worker : {4, 0, 9, 2}) group.Add(From(worker, 10 + worker, 1));
  EXPECT_EQ(Waiting(&group), "0/10/1 2/12/1 4/14/1 9/19/1 ");
  EXPECT_EQ(Arrived(group), "0/10 2/12 4/14 9/19 ");
}

TEST(GroupTest, WorkersSecondContributionTakesThePlaceOfItsFirst) {
  Group group(0);
  group.Add(From(4, 14, 1));
  group.Add(From(2, 12, 1));
  group.Add(From(4, 50, 3));
  EXPECT_EQ(Waiting(&group), "2/12/1 4/50/3 ");
  EXPECT_EQ(Arrived(group), "2/12 4/50 ");
}

// It is applied by a thread that the newer connection's has overtaken.
TEST(GroupTest, CopyOfAnOlderConnectionDoesNotTakeThePlaceOfANewerOne) {
  Group group(0);
  group.Add(From(4, 14, 3, /*connection=*/8));
  const auto replaced = group.Add(From(4, 14, 3, /*connection=*/7));
  ASSERT_TRUE(replaced.has_value());
  EXPECT_EQ(replaced->incarnation, 14u) << "the gate's tally stays as it is";
  ASSERT_EQ(group.waiting().size(), 1u);
  EXPECT_EQ(group.waiting()[0].envelope.connection, 8u);
  group.Add(From(4, 50, 1, /*connection=*/6));
  EXPECT_EQ(Waiting(&group), "4/50/1 ") << "numbers compare connections of one incarnation";
}

TEST(GroupTest, ClearedGroupIsEmpty) {
  Group group(0);
  group.Add(From(4, 14, 1));
  group.Clear();
  EXPECT_EQ(Waiting(&group) + Arrived(group), "");
}

}  // namespace
}  // namespace catchment
