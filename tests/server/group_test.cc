#include "server/group.h"

#include <gtest/gtest.h>

namespace catchment {
namespace {

Request From(uint32_t worker, uint64_t incarnation, uint64_t sequence) {
  Request request;
  request.worker = worker;
  request.incarnation = incarnation;
  request.header.sequence = sequence;
  return request;
}

// "worker/incarnation/sequence ..."
std::string Waiting(Group* group) {
  std::string text;
  for (const Request& request : group->waiting()) {
    text += std::to_string(request.worker) + "/" + std::to_string(request.incarnation) + "/" +
            std::to_string(request.header.sequence) + " ";
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

TEST(GroupTest, NobodyWaitsInAClearedGroup) {
  Group group(0);
  group.Add(From(4, 14, 1));
  group.Clear();
  EXPECT_EQ(Waiting(&group) + Arrived(group), "");
}

}  // namespace
}  // namespace catchment
