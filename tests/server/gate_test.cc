#include "server/gate.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/server/shard_harness.h"

namespace catchment {
namespace {

Gate MakeGate(const std::string& algorithm, std::vector<v1::Roster> rosters) {
  Gate gate(GradientJobWith(algorithm).algorithm());
  EXPECT_TRUE(gate.SetRosters(1, std::move(rosters)));
  return gate;
}

Gate Synchronous(std::vector<v1::Roster> rosters) {
  return MakeGate("consistency { groups: 1 }", std::move(rosters));
}

std::vector<Gate::Arrival> In(const std::vector<uint32_t>& workers) {
  std::vector<Gate::Arrival> arrived;
  for (uint32_t worker : workers) arrived.push_back({worker, IncarnationOf(worker)});
  return arrived;
}

using Decision = Gate::Decision;

// ------------------------------------------------------------------------------------------- synchronous

TEST(GateTest, SynchronousUpdateIsMadeWhenAllMembersAreIn) {
  const Gate gate = Synchronous({MakeRoster(0, {0, 2, 5})});
  EXPECT_EQ(gate.Decide(0, 0, {}), Decision::kWait);
  EXPECT_EQ(gate.Decide(0, 0, In({0, 2})), Decision::kWait);
  EXPECT_EQ(gate.Decide(0, 0, In({0, 1, 2, 3})), Decision::kWait) << "others do not stand in for a member";
  EXPECT_EQ(gate.Decide(0, 0, In({0, 2, 5})), Decision::kUpdate);
  EXPECT_EQ(gate.Decide(7, 0, In({0, 2, 5})), Decision::kUpdate);
}

TEST(GateTest, VersionsAreMadeByTheLastRosterThatBeginsAtOrBeforeThem) {
  const Gate gate = Synchronous({MakeRoster(0, {0}), MakeRoster(4, {0, 1})});
  EXPECT_EQ(gate.Decide(3, 0, In({0})), Decision::kUpdate);
  EXPECT_EQ(gate.Decide(4, 0, In({0})), Decision::kWait);
  EXPECT_EQ(gate.Decide(4, 0, In({0, 1})), Decision::kUpdate);
  EXPECT_EQ(gate.Decide(1000, 0, In({0})), Decision::kWait);
}

TEST(GateTest, WithoutRostersEverybodyWaits) {
  EXPECT_EQ(Synchronous({}).Decide(0, 0, In({0})), Decision::kWait);
  EXPECT_EQ(Synchronous({MakeRoster(2, {0})}).Decide(1, 0, In({0})), Decision::kWait);
}

TEST(GateTest, WithoutRostersNobodyIsThereOrSlow) {
  const Gate gate = MakeGate("consistency { groups: 0 staleness_bound: 2 }", {});
  EXPECT_EQ(gate.ActiveMembers(0), 0u);
  const std::vector<Gate::Finished> finished = {{IncarnationOf(0), 3}};
  EXPECT_EQ(gate.ClockOf(0, finished), 0u);
  EXPECT_EQ(gate.HighestClock(finished), UINT64_MAX);
}

TEST(GateTest, EmptyRosterIsSkippedOnlyWhenALaterOneExists) {
  const std::vector<uint32_t> nobody;
  EXPECT_EQ(Synchronous({MakeRoster(0, nobody)}).Decide(3, 0, {}), Decision::kWait);
  const Gate gate = Synchronous({MakeRoster(0, nobody), MakeRoster(5, nobody), MakeRoster(9, {1})});
  EXPECT_EQ(gate.Decide(3, 0, {}), Decision::kSkip);
  EXPECT_EQ(gate.SkipTo(3), 5u);
  EXPECT_EQ(gate.Decide(5, 0, {}), Decision::kSkip);
  EXPECT_EQ(gate.SkipTo(5), 9u);
  EXPECT_EQ(gate.Decide(9, 0, {}), Decision::kWait);
}

TEST(GateTest, WhatIsInCountsWhenItsSendersHaveGone) {
  const std::vector<uint32_t> nobody;
  for (const char* groups : {"consistency { groups: 1 }", "consistency { groups: 3 }",
                             "consistency { groups: 1 spare_workers: 2 }"}) {
    EXPECT_EQ(MakeGate(groups, {MakeRoster(0, nobody)}).Decide(0, 0, In({3})), Decision::kUpdate) << groups;
  }
}

TEST(GateTest, OlderRostersDoNotTakeThePlaceOfNewerOnes) {
  Gate gate = Synchronous({MakeRoster(0, {0})});
  EXPECT_TRUE(gate.SetRosters(5, {MakeRoster(0, {0, 1})}));
  EXPECT_FALSE(gate.SetRosters(5, {MakeRoster(0, {0})}));
  EXPECT_FALSE(gate.SetRosters(4, {MakeRoster(0, {0})}));
  EXPECT_EQ(gate.generation(), 5u);
  EXPECT_EQ(gate.Decide(0, 0, In({0})), Decision::kWait);
}

TEST(GateTest, MembershipIsOfWorkerAndIncarnationTogether) {
  const Gate gate = Synchronous({RosterOfLives(0, {{0, 7}}), RosterOfLives(3, {{1, 8}})});
  EXPECT_TRUE(gate.IsMember(0, 7));
  EXPECT_TRUE(gate.IsMember(1, 8));
  EXPECT_FALSE(gate.IsMember(0, 8));
  EXPECT_FALSE(gate.IsMember(2, 7));
}

// ------------------------------------------------------------------------------------------------ groups

TEST(GateTest, GroupsOfAHybridWaitForTheirOwnMembersOnly) {
  const Gate gate = MakeGate("consistency { groups: 2 }", {MakeRoster(0, {0, 1, 2, 3, 4})});
  EXPECT_EQ(gate.GroupOf(4), 0u);
  EXPECT_EQ(gate.GroupOf(3), 1u);
  EXPECT_EQ(gate.Decide(8, 0, In({0, 2})), Decision::kWait);
  EXPECT_EQ(gate.Decide(8, 0, In({0, 2, 4})), Decision::kUpdate);
  EXPECT_EQ(gate.Decide(8, 1, In({1})), Decision::kWait);
  EXPECT_EQ(gate.Decide(8, 1, In({1, 3})), Decision::kUpdate);
  EXPECT_EQ(gate.Decide(8, 1, {}), Decision::kWait);
}

TEST(GateTest, SpareWorkersAreTheLastWhoeverTheyAre) {
  const Gate gate = MakeGate("consistency { groups: 1 spare_workers: 2 }", {MakeRoster(0, {0, 1, 2, 3, 4})});
  EXPECT_EQ(gate.Decide(0, 0, In({1, 4})), Decision::kWait);
  EXPECT_EQ(gate.Decide(0, 0, In({1, 3, 4})), Decision::kUpdate);
  EXPECT_EQ(gate.Decide(0, 0, In({0, 1, 2})), Decision::kUpdate);
  const Gate hybrid =
      MakeGate("consistency { groups: 2 spare_workers: 1 }", {MakeRoster(0, {0, 1, 2, 3, 4})});
  EXPECT_EQ(hybrid.Decide(0, 0, In({4})), Decision::kWait);
  EXPECT_EQ(hybrid.Decide(0, 0, In({0, 4})), Decision::kUpdate) << "2 of 3";
  EXPECT_EQ(hybrid.Decide(0, 1, In({3})), Decision::kUpdate) << "1 of 2";
}

TEST(GateTest, AsManySparesAsMembersStillWaitForOne) {
  const Gate gate = MakeGate("consistency { groups: 1 spare_workers: 3 }", {MakeRoster(0, {0, 1})});
  EXPECT_EQ(gate.Decide(0, 0, {}), Decision::kWait);
  EXPECT_EQ(gate.Decide(0, 0, In({7})), Decision::kWait) << "it has left";
  EXPECT_EQ(gate.Decide(0, 0, In({1})), Decision::kUpdate);
}

TEST(GateTest, NobodyWaitsForTheIdleAndTheyStandInForNobody) {
  const v1::Roster roster = WithIdle(MakeRoster(0, {0, 1, 2}), {1});
  const Gate gate = MakeGate("consistency { groups: 1 spare_workers: 1 }", {roster});
  EXPECT_EQ(gate.Decide(0, 0, In({1})), Decision::kWait) << "of 0 and 2 one is spare, and one is not";
  EXPECT_EQ(gate.Decide(0, 0, In({0, 1})), Decision::kUpdate);
  const Gate hybrid = MakeGate("consistency { groups: 2 }", {WithIdle(MakeRoster(0, {0, 1, 2}), {2})});
  EXPECT_EQ(hybrid.Decide(0, 0, In({2})), Decision::kWait);
  EXPECT_EQ(hybrid.Decide(0, 0, In({0})), Decision::kUpdate);
  const Gate all_idle = MakeGate("consistency { groups: 2 }", {WithIdle(MakeRoster(0, {0, 2}), {0, 2})});
  EXPECT_EQ(all_idle.Decide(0, 0, In({2})), Decision::kUpdate) << "what is in counts";
  EXPECT_EQ(all_idle.Decide(0, 0, {}), Decision::kWait);
}

TEST(GateTest, FormerLifeDoesNotStandInForTheNewOne) {
  const Gate gate =
      MakeGate("consistency { groups: 2 }", {RosterOfLives(0, {{0, 50}, {2, IncarnationOf(2)}})});
  EXPECT_EQ(gate.Decide(0, 0, In({0, 2})), Decision::kWait);
}

// -------------------------------------------------------------------------------------- in order of arrival

TEST(GateTest, AsynchronousUpdateIsMadeOfEveryContribution) {
  const Gate gate = MakeGate("", {MakeRoster(0, {0, 1})});
  EXPECT_FALSE(gate.in_groups());
  EXPECT_FALSE(gate.answers_at_once());
  EXPECT_FALSE(gate.bounded());
  EXPECT_EQ(gate.Due(0), 0u);
  EXPECT_EQ(gate.Due(1), 1u);
}

TEST(GateTest, SoftsyncTakesMembersOverN) {
  struct Case {
    uint32_t members, n;
    size_t batch;
  };
  for (const Case& c : {Case{4, 1, 4}, {4, 2, 2}, {5, 2, 2}, {5, 3, 1}, {3, 3, 1}, {2, 3, 1}, {0, 1, 1}}) {
    std::vector<uint32_t> members(c.members);
    for (uint32_t i = 0; i < c.members; ++i) members[i] = i;
    const Gate gate =
        MakeGate("consistency { softsync: " + std::to_string(c.n) + " }", {MakeRoster(0, members)});
    EXPECT_TRUE(gate.answers_at_once());
    EXPECT_EQ(gate.Due(c.batch - 1), 0u) << c.members << " " << c.n;
    EXPECT_EQ(gate.Due(c.batch), c.batch) << c.members << " " << c.n;
    EXPECT_EQ(gate.Due(c.batch + 5), c.batch) << "when members have left, one update after the other";
  }
}

TEST(GateTest, SoftsyncCountsActiveMembers) {
  const v1::Roster roster = WithIdle(MakeRoster(0, {0, 1, 2, 3, 4}), {1, 2});
  const Gate gate = MakeGate("consistency { softsync: 1 }", {roster});
  EXPECT_EQ(gate.Due(2), 0u);
  EXPECT_EQ(gate.Due(3), 3u);
}

TEST(GateTest, DelayedContributionsAreAppliedOneByOneOnceMoreThanThatManyWait) {
  const Gate gate = MakeGate("emulated_delay: 3", {MakeRoster(0, {0, 1})});
  EXPECT_TRUE(gate.answers_at_once());
  EXPECT_EQ(gate.Due(3), 0u);
  EXPECT_EQ(gate.Due(4), 1u);
}

// ----------------------------------------------------------------------------------------------- clocks

std::vector<Gate::Finished> Pushes(const std::vector<uint64_t>& pushes) {
  std::vector<Gate::Finished> finished;
  for (uint32_t worker = 0; worker < pushes.size(); ++worker) {
    finished.push_back({IncarnationOf(worker), pushes[worker]});
  }
  return finished;
}

TEST(GateTest, WorkersMayBeAheadOfTheSlowestByTheBound) {
  for (uint32_t bound : {0, 3}) {
    const Gate gate = MakeGate("consistency { staleness_bound: " + std::to_string(bound) + " }",
                               {MakeRoster(0, {0, 1, 2})});
    EXPECT_TRUE(gate.bounded());
    EXPECT_EQ(gate.HighestClock(Pushes({9, 4, 7})), 4 + bound);
    EXPECT_EQ(gate.ClockOf(2, Pushes({9, 4, 7})), 7u);
  }
}

TEST(GateTest, ClocksOfTheIdleAndOfFormerLivesDoNotCount) {
  const std::string bound = "consistency { staleness_bound: 1 }";
  const Gate gate = MakeGate(bound, {WithIdle(MakeRoster(0, {0, 1, 2}), {1})});
  EXPECT_EQ(gate.HighestClock(Pushes({9, 4, 7})), 8u);
  const Gate new_life = MakeGate(bound, {RosterOfLives(0, {{0, IncarnationOf(0)}, {1, 50}})});
  EXPECT_EQ(new_life.ClockOf(1, Pushes({9, 4})), 0u);
  EXPECT_EQ(new_life.HighestClock(Pushes({9, 4})), 1u);
}

TEST(GateTest, ClocksBeginWhereTheMasterSays) {
  v1::Roster roster = MakeRoster(0, {0, 1});
  roster.mutable_members(1)->set_clock(30);
  const Gate gate = MakeGate("consistency { staleness_bound: 1 }", {roster});
  EXPECT_EQ(gate.ClockOf(1, Pushes({35, 2})), 32u);
  EXPECT_EQ(gate.HighestClock(Pushes({35, 2})), 33u);
}

TEST(GateTest, WhereNobodyHasWorkNobodyIsHeldUp) {
  const Gate gate = MakeGate("consistency { staleness_bound: 1 }", {WithIdle(MakeRoster(0, {0}), {0})});
  EXPECT_EQ(gate.HighestClock(Pushes({9})), UINT64_MAX);
}

TEST(GateTest, ActiveMembersAreThoseOfTheVersionThatHaveWork) {
  EXPECT_EQ(Synchronous({MakeRoster(0, {0}), MakeRoster(4, {0, 1, 2})}).ActiveMembers(3), 1u);
  EXPECT_EQ(Synchronous({MakeRoster(0, {0}), MakeRoster(4, {0, 1, 2})}).ActiveMembers(4), 3u);
  EXPECT_EQ(MakeGate("", {WithIdle(MakeRoster(0, {0, 1, 2}), {1})}).ActiveMembers(77), 2u);
}

}  // namespace
}  // namespace catchment
