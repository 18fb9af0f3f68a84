#include "server/gate.h"

#include <gtest/gtest.h>

#include "tests/server/shard_harness.h"

namespace catchment {
namespace {

Gate MakeGate(bool synchronous, std::vector<v1::Roster> rosters) {
  v1::Consistency consistency;
  consistency.set_groups(synchronous ? 1 : 0);
  Gate gate(consistency);
  EXPECT_TRUE(gate.SetRosters(1, std::move(rosters)));
  return gate;
}

TEST(GateTest, SynchronousUpdateIsMadeWhenAllMembersAreIn) {
  const Gate gate = MakeGate(true, {MakeRoster(0, {0, 2, 5})});
  EXPECT_EQ(gate.Decide(0, {}), Gate::Decision::kWait);
  EXPECT_EQ(gate.Decide(0, {0, 2}), Gate::Decision::kWait);
  EXPECT_EQ(gate.Decide(0, {0, 1, 2, 3}), Gate::Decision::kWait) << "others do not stand in for a member";
  EXPECT_EQ(gate.Decide(0, {0, 2, 5}), Gate::Decision::kUpdate);
  EXPECT_EQ(gate.Decide(7, {0, 2, 5}), Gate::Decision::kUpdate);
}

TEST(GateTest, AsynchronousUpdateIsMadeOfEveryContribution) {
  const Gate gate = MakeGate(false, {MakeRoster(0, {0, 1})});
  EXPECT_EQ(gate.Decide(3, {}), Gate::Decision::kWait);
  EXPECT_EQ(gate.Decide(3, {1}), Gate::Decision::kUpdate);
}

TEST(GateTest, VersionsAreMadeByTheLastRosterThatBeginsAtOrBeforeThem) {
  const Gate gate = MakeGate(true, {MakeRoster(0, {0}), MakeRoster(4, {0, 1})});
  EXPECT_EQ(gate.Decide(3, {0}), Gate::Decision::kUpdate);
  EXPECT_EQ(gate.Decide(4, {0}), Gate::Decision::kWait);
  EXPECT_EQ(gate.Decide(4, {0, 1}), Gate::Decision::kUpdate);
  EXPECT_EQ(gate.Decide(1000, {0}), Gate::Decision::kWait);
}

TEST(GateTest, WithoutRostersEverybodyWaits) {
  const Gate gate = MakeGate(true, {});
  EXPECT_EQ(gate.Decide(0, {0}), Gate::Decision::kWait);
  const Gate later = MakeGate(true, {MakeRoster(2, {0})});
  EXPECT_EQ(later.Decide(1, {0}), Gate::Decision::kWait);
}

TEST(GateTest, EmptyRosterIsSkippedOnlyWhenALaterOneExists) {
  const std::vector<uint32_t> nobody;
  EXPECT_EQ(MakeGate(true, {MakeRoster(0, nobody)}).Decide(3, {}), Gate::Decision::kWait);
  const Gate gate = MakeGate(true, {MakeRoster(0, nobody), MakeRoster(5, nobody), MakeRoster(9, {1})});
  EXPECT_EQ(gate.Decide(3, {}), Gate::Decision::kSkip);
  EXPECT_EQ(gate.SkipTo(3), 5u);
  EXPECT_EQ(gate.Decide(5, {}), Gate::Decision::kSkip);
  EXPECT_EQ(gate.SkipTo(5), 9u);
  EXPECT_EQ(gate.Decide(9, {}), Gate::Decision::kWait);
}

TEST(GateTest, WhatIsInCountsWhenItsSendersHaveGone) {
  const std::vector<uint32_t> nobody;
  EXPECT_EQ(MakeGate(true, {MakeRoster(0, nobody)}).Decide(0, {3}), Gate::Decision::kUpdate);
}

TEST(GateTest, OlderRostersDoNotTakeThePlaceOfNewerOnes) {
  Gate gate = MakeGate(true, {MakeRoster(0, {0})});
  EXPECT_TRUE(gate.SetRosters(5, {MakeRoster(0, {0, 1})}));
  EXPECT_FALSE(gate.SetRosters(5, {MakeRoster(0, {0})}));
  EXPECT_FALSE(gate.SetRosters(4, {MakeRoster(0, {0})}));
  EXPECT_EQ(gate.generation(), 5u);
  EXPECT_EQ(gate.Decide(0, {0}), Gate::Decision::kWait);
}

TEST(GateTest, MembershipIsOfWorkerAndIncarnationTogether) {
  const Gate gate = MakeGate(true, {RosterOfLives(0, {{0, 7}}), RosterOfLives(3, {{1, 8}})});
  EXPECT_TRUE(gate.IsMember(0, 7));
  EXPECT_TRUE(gate.IsMember(1, 8));
  EXPECT_FALSE(gate.IsMember(0, 8));
  EXPECT_FALSE(gate.IsMember(2, 7));
}

}  // namespace
}  // namespace catchment
