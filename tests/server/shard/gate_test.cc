#include "server/shard/gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "server/shard/group.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

Gate MakeGate(const std::string& algorithm, std::vector<v1::Roster> rosters) {
  Gate gate(GradientJobWith(algorithm).algorithm());
  EXPECT_TRUE(gate.SetRosters(1, std::move(rosters)));
  return gate;
}

Gate Synchronous(std::vector<v1::Roster> rosters) {
  return MakeGate("consistency { synchronous {} }", std::move(rosters));
}

std::vector<Gate::Arrival> In(const std::vector<uint32_t>& workers) {
  std::vector<Gate::Arrival> arrived;
  for (uint32_t worker : workers) arrived.push_back({worker, IncarnationOf(worker)});
  return arrived;
}

using Decision = Gate::Decision;

// Returns the gate's decision on contributions none of which was counted before.
Decision Decide(const Gate& gate, uint64_t version, uint32_t group,
                const std::vector<Gate::Arrival>& arrived) {
  Gate::Tally tally;
  return gate.Decide(version, group, arrived, {}, &tally);
}

// ------------------------------------------------------------------------------------------- synchronous

TEST(GateTest, SynchronousUpdateIsMadeWhenAllMembersAreIn) {
  const Gate gate = Synchronous({MakeRoster(0, {0, 2, 5})});
  EXPECT_EQ(Decide(gate, 0, 0, {}), Decision::kWait);
  EXPECT_EQ(Decide(gate, 0, 0, In({0, 2})), Decision::kWait);
  EXPECT_EQ(Decide(gate, 0, 0, In({0, 1, 2, 3})), Decision::kWait) << "others do not stand in for a member";
  EXPECT_EQ(Decide(gate, 0, 0, In({0, 2, 5})), Decision::kUpdate);
  EXPECT_EQ(Decide(gate, 7, 0, In({0, 2, 5})), Decision::kUpdate);
}

TEST(GateTest, VersionsAreMadeByTheLastRosterThatBeginsAtOrBeforeThem) {
  const Gate gate = Synchronous({MakeRoster(0, {0}), MakeRoster(4, {0, 1})});
  EXPECT_EQ(Decide(gate, 3, 0, In({0})), Decision::kUpdate);
  EXPECT_EQ(Decide(gate, 4, 0, In({0})), Decision::kWait);
  EXPECT_EQ(Decide(gate, 4, 0, In({0, 1})), Decision::kUpdate);
  EXPECT_EQ(Decide(gate, 1000, 0, In({0})), Decision::kWait);
}

TEST(GateTest, WithoutRostersEverybodyWaits) {
  EXPECT_EQ(Decide(Synchronous({}), 0, 0, In({0})), Decision::kWait);
  EXPECT_EQ(Decide(Synchronous({MakeRoster(2, {0})}), 1, 0, In({0})), Decision::kWait);
}

TEST(GateTest, WithoutRostersNobodyIsThereOrSlow) {
  const Gate gate = MakeGate("consistency { bounded_staleness { bound: 2 } }", {});
  EXPECT_EQ(gate.ActiveMembers(0), 0u);
  const std::vector<Gate::Finished> finished = {{IncarnationOf(0), 3}};
  EXPECT_EQ(gate.ClockOf(0, finished), 0u);
  EXPECT_EQ(gate.HighestClock(finished), UINT64_MAX);
}

TEST(GateTest, EmptyRosterIsSkippedOnlyWhenALaterOneExists) {
  const std::vector<uint32_t> no_members;
  EXPECT_EQ(Decide(Synchronous({MakeRoster(0, no_members)}), 3, 0, {}), Decision::kWait);
  const Gate gate = Synchronous({MakeRoster(0, no_members), MakeRoster(5, no_members), MakeRoster(9, {1})});
  EXPECT_EQ(Decide(gate, 3, 0, {}), Decision::kSkip);
  EXPECT_EQ(gate.SkipTo(3), 5u);
  EXPECT_EQ(Decide(gate, 5, 0, {}), Decision::kSkip);
  EXPECT_EQ(gate.SkipTo(5), 9u);
  EXPECT_EQ(Decide(gate, 9, 0, {}), Decision::kWait);
}

TEST(GateTest, WhatIsInCountsWhenItsSendersHaveGone) {
  const std::vector<uint32_t> no_members;
  for (const char* groups : {"consistency { synchronous {} }", "consistency { grouped { groups: 3 } }",
                             "consistency { synchronous { backup_workers: 2 } }"}) {
    EXPECT_EQ(Decide(MakeGate(groups, {MakeRoster(0, no_members)}), 0, 0, In({3})), Decision::kUpdate)
        << groups;
  }
}

TEST(GateTest, OlderRostersDoNotTakeThePlaceOfNewerOnes) {
  Gate gate = Synchronous({MakeRoster(0, {0})});
  EXPECT_TRUE(gate.SetRosters(5, {MakeRoster(0, {0, 1})}));
  EXPECT_FALSE(gate.SetRosters(5, {MakeRoster(0, {0})}));
  EXPECT_FALSE(gate.SetRosters(4, {MakeRoster(0, {0})}));
  EXPECT_EQ(gate.generation(), 5u);
  EXPECT_EQ(Decide(gate, 0, 0, In({0})), Decision::kWait);
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
  const Gate gate = MakeGate("consistency { grouped { groups: 2 } }", {MakeRoster(0, {0, 1, 2, 3, 4})});
  EXPECT_EQ(gate.GroupOf(4), 0u);
  EXPECT_EQ(gate.GroupOf(3), 1u);
  EXPECT_EQ(Decide(gate, 8, 0, In({0, 2})), Decision::kWait);
  EXPECT_EQ(Decide(gate, 8, 0, In({0, 2, 4})), Decision::kUpdate);
  EXPECT_EQ(Decide(gate, 8, 1, In({1})), Decision::kWait);
  EXPECT_EQ(Decide(gate, 8, 1, In({1, 3})), Decision::kUpdate);
  EXPECT_EQ(Decide(gate, 8, 1, {}), Decision::kWait);
}

TEST(GateTest, BackupWorkersAreTheLastWhoeverTheyAre) {
  const Gate gate =
      MakeGate("consistency { synchronous { backup_workers: 2 } }", {MakeRoster(0, {0, 1, 2, 3, 4})});
  EXPECT_EQ(Decide(gate, 0, 0, In({1, 4})), Decision::kWait);
  EXPECT_EQ(Decide(gate, 0, 0, In({1, 3, 4})), Decision::kUpdate);
  EXPECT_EQ(Decide(gate, 0, 0, In({0, 1, 2})), Decision::kUpdate);
  const Gate hybrid =
      MakeGate("consistency { grouped { groups: 2 backup_workers: 1 } }", {MakeRoster(0, {0, 1, 2, 3, 4})});
  EXPECT_EQ(Decide(hybrid, 0, 0, In({4})), Decision::kWait);
  EXPECT_EQ(Decide(hybrid, 0, 0, In({0, 4})), Decision::kUpdate) << "2 of 3";
  EXPECT_EQ(Decide(hybrid, 0, 1, In({3})), Decision::kUpdate) << "1 of 2";
}

TEST(GateTest, AsManyBackupWorkersAsMembersStillWaitForOne) {
  const Gate gate = MakeGate("consistency { synchronous { backup_workers: 3 } }", {MakeRoster(0, {0, 1})});
  EXPECT_EQ(Decide(gate, 0, 0, {}), Decision::kWait);
  EXPECT_EQ(Decide(gate, 0, 0, In({7})), Decision::kWait) << "it has left";
  EXPECT_EQ(Decide(gate, 0, 0, In({1})), Decision::kUpdate);
}

TEST(GateTest, NobodyWaitsForTheIdleAndTheyStandInForNobody) {
  const v1::Roster roster = WithIdle(MakeRoster(0, {0, 1, 2}), {1});
  const Gate gate = MakeGate("consistency { synchronous { backup_workers: 1 } }", {roster});
  EXPECT_EQ(Decide(gate, 0, 0, In({1})), Decision::kWait)
      << "of 0 and 2 one is a backup worker, and one is not";
  EXPECT_EQ(Decide(gate, 0, 0, In({0, 1})), Decision::kUpdate);
  const Gate hybrid =
      MakeGate("consistency { grouped { groups: 2 } }", {WithIdle(MakeRoster(0, {0, 1, 2}), {2})});
  EXPECT_EQ(Decide(hybrid, 0, 0, In({2})), Decision::kWait);
  EXPECT_EQ(Decide(hybrid, 0, 0, In({0})), Decision::kUpdate);
  const Gate all_idle =
      MakeGate("consistency { grouped { groups: 2 } }", {WithIdle(MakeRoster(0, {0, 2}), {0, 2})});
  EXPECT_EQ(Decide(all_idle, 0, 0, In({2})), Decision::kUpdate) << "what is in counts";
  EXPECT_EQ(Decide(all_idle, 0, 0, {}), Decision::kWait);
}

TEST(GateTest, FormerIncarnationDoesNotStandInForTheNewOne) {
  const Gate gate =
      MakeGate("consistency { grouped { groups: 2 } }", {RosterOfLives(0, {{0, 50}, {2, IncarnationOf(2)}})});
  EXPECT_EQ(Decide(gate, 0, 0, In({0, 2})), Decision::kWait);
}

// The same questions answered by going over all members, and all arrivals for each of them.
class PlainGate {
 public:
  PlainGate(uint32_t groups, uint32_t backup_workers, bool synchronous)
      : groups_(groups), backup_workers_(backup_workers), synchronous_(synchronous) {}

  std::vector<v1::Roster> rosters;

  bool IsMember(uint32_t worker, uint64_t incarnation) const {
    for (const v1::Roster& roster : rosters) {
      for (const v1::Member& member : roster.members()) {
        if (member.worker() == worker && member.incarnation() == incarnation) return true;
      }
    }
    return false;
  }
  uint32_t ActiveMembers(uint64_t version) const {
    uint32_t active = 0;
    if (const v1::Roster* roster = RosterOf(version); roster != nullptr) {
      for (const v1::Member& member : roster->members()) active += !member.idle();
    }
    return active;
  }
  Decision Decide(uint64_t version, uint32_t group, const std::vector<Gate::Arrival>& arrived) const {
    const v1::Roster* roster = RosterOf(version);
    if (roster == nullptr) return Decision::kWait;
    uint32_t active = 0, in = 0;
    for (const v1::Member& member : roster->members()) {
      if (member.idle() || member.worker() % groups_ != group) continue;
      ++active;
      for (const Gate::Arrival& arrival : arrived) {
        in += arrival.worker == member.worker() && arrival.incarnation == member.incarnation();
      }
    }
    const uint32_t backup = active == 0 ? 0 : std::min(backup_workers_, active - 1);
    if (in < active - backup) return Decision::kWait;
    if (!arrived.empty()) return Decision::kUpdate;
    const bool later = std::any_of(rosters.begin(), rosters.end(), [version](const v1::Roster& other) {
      return other.from_version() > version;
    });
    return synchronous_ && later ? Decision::kSkip : Decision::kWait;
  }

 private:
  const v1::Roster* RosterOf(uint64_t version) const {
    const v1::Roster* found = nullptr;
    for (const v1::Roster& roster : rosters) {
      if (roster.from_version() <= version) found = &roster;
    }
    return found;
  }

  const uint32_t groups_, backup_workers_;
  const bool synchronous_;
};

// Rosters, contributions and versions arrive in random order; contributions are counted once, as by a shard.
class RandomGate {
 public:
  static constexpr uint32_t kWorkers = 7;

  RandomGate(uint32_t groups, uint32_t backup_workers, unsigned seed)
      : gate_(MakeAlgorithm(groups, backup_workers)),
        plain_(groups, backup_workers, groups == 1 && backup_workers == 0),
        groups_(groups),
        random_(seed) {
    for (uint32_t g = 0; g < groups; ++g) arrived_.emplace_back(0);
  }

  void Step() {
    switch (Draw(8)) {
      case 0:
        ChangeRosters();
        break;
      case 1:
        version_ += Draw(3);
        break;
      default: {
        const uint32_t worker = Draw(kWorkers);
        const uint64_t incarnation = 1 + Draw(2);
        Group& group = arrived_[worker % groups_];
        WaitingContribution waiting{.envelope = {.worker = worker, .incarnation = incarnation}};
        gate_.Count({worker, incarnation}, group.Add(std::move(waiting)), &group.tally());
      }
    }
    const uint32_t g = Draw(groups_);
    Group& group = arrived_[g];
    const Decision decision = gate_.Decide(version_, g, group.arrived(), {}, &group.tally());
    ASSERT_EQ(decision, plain_.Decide(version_, g, group.arrived()));
    ++decisions[decision];
    if (decision == Decision::kUpdate) {
      group.Clear();
      ++version_;
    }
    ASSERT_EQ(gate_.ActiveMembers(version_), plain_.ActiveMembers(version_));
    const uint32_t worker = Draw(kWorkers);
    const uint64_t incarnation = 1 + Draw(2);
    ASSERT_EQ(gate_.IsMember(worker, incarnation), plain_.IsMember(worker, incarnation));
  }

  std::map<Decision, int> decisions;

 private:
  static v1::Algorithm MakeAlgorithm(uint32_t groups, uint32_t backup_workers) {
    v1::Algorithm algorithm;
    v1::Consistency* consistency = algorithm.mutable_consistency();
    if (groups == 1) {
      consistency->mutable_synchronous()->set_backup_workers(backup_workers);
    } else {
      consistency->mutable_grouped()->set_groups(groups);
      consistency->mutable_grouped()->set_backup_workers(backup_workers);
    }
    return algorithm;
  }

  uint32_t Draw(uint32_t below) { return std::uniform_int_distribution<uint32_t>(0, below - 1)(random_); }

  void ChangeRosters() {
    plain_.rosters.clear();
    uint64_t from = version_ - std::min<uint64_t>(version_, Draw(3));
    for (uint32_t i = Draw(4); i > 0; --i) {
      v1::Roster roster;
      roster.set_from_version(from);
      from += 1 + Draw(3);
      for (uint32_t worker = 0; worker < kWorkers; ++worker) {
        if (Draw(2) == 0) continue;
        v1::Member* member = roster.add_members();
        member->set_worker(worker);
        member->set_incarnation(1 + Draw(2));
        member->set_idle(Draw(4) == 0);
      }
      plain_.rosters.push_back(roster);
    }
    ASSERT_TRUE(gate_.SetRosters(++generation_, plain_.rosters));
  }

  Gate gate_;
  PlainGate plain_;
  const uint32_t groups_;
  std::mt19937 random_;
  uint64_t generation_ = 0;
  uint64_t version_ = 0;
  std::vector<Group> arrived_;  // by group
};

TEST(GateTest, DecidesAsOneThatGoesOverAllMembersEachTime) {
  for (const uint32_t groups : {1, 2, 3}) {
    for (const uint32_t backup_workers : {0, 1, 2}) {
      std::map<Decision, int> decisions;
      for (unsigned seed = 0; seed < 20; ++seed) {
        RandomGate gate(groups, backup_workers, seed);
        for (int step = 0; step < 500; ++step) {
          ASSERT_NO_FATAL_FAILURE(gate.Step()) << groups << " groups, " << backup_workers
                                               << " backup workers, seed " << seed << ", step " << step;
        }
        for (const auto& [decision, count] : gate.decisions) decisions[decision] += count;
      }
      EXPECT_GT(decisions[Decision::kWait], 100);
      EXPECT_GT(decisions[Decision::kUpdate], 100);
    }
  }
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
        MakeGate("consistency { n_softsync { n: " + std::to_string(c.n) + " } }", {MakeRoster(0, members)});
    EXPECT_TRUE(gate.answers_at_once());
    EXPECT_EQ(gate.Due(c.batch - 1), 0u) << c.members << " " << c.n;
    EXPECT_EQ(gate.Due(c.batch), c.batch) << c.members << " " << c.n;
    EXPECT_EQ(gate.Due(c.batch + 5), c.batch) << "when members have left, one update after the other";
  }
}

TEST(GateTest, SoftsyncOfASizeTakesThatManyOrOneOfEachMember) {
  for (const auto& [members, batch] :
       std::vector<std::pair<uint32_t, size_t>>{{5, 3}, {3, 3}, {2, 2}, {1, 1}, {0, 1}}) {
    std::vector<uint32_t> workers(members);
    std::iota(workers.begin(), workers.end(), 0);
    const Gate gate = MakeGate("consistency { n_softsync { size: 3 } }", {MakeRoster(0, workers)});
    EXPECT_TRUE(gate.answers_at_once());
    EXPECT_EQ(gate.Due(batch - 1), 0u) << members;
    EXPECT_EQ(gate.Due(batch), batch) << members;
    EXPECT_EQ(gate.Due(batch + 5), batch) << members;
  }
}

TEST(GateTest, SoftsyncCountsActiveMembers) {
  const v1::Roster roster = WithIdle(MakeRoster(0, {0, 1, 2, 3, 4}), {1, 2});
  const Gate gate = MakeGate("consistency { n_softsync { n: 1 } }", {roster});
  EXPECT_EQ(gate.Due(2), 0u);
  EXPECT_EQ(gate.Due(3), 3u);
}

TEST(GateTest, DelayedContributionsAreAppliedOneByOneOnceMoreThanThatManyWait) {
  const Gate gate = MakeGate("consistency { asynchronous { emulated_delay: 3 } }", {MakeRoster(0, {0, 1})});
  EXPECT_TRUE(gate.answers_at_once());
  EXPECT_EQ(gate.Due(3), 0u);
  EXPECT_EQ(gate.Due(4), 1u);
}

TEST(GateTest, IsTooStaleFromTheLimitOn) {
  const Gate gate = MakeGate("consistency { asynchronous { staleness_limit: 3 } }", {MakeRoster(0, {0, 1})});
  EXPECT_FALSE(gate.answers_at_once());
  EXPECT_EQ(gate.Due(1), 1u);
  EXPECT_FALSE(gate.IsTooStale(2));
  EXPECT_TRUE(gate.IsTooStale(3));
  EXPECT_TRUE(gate.IsTooStale(300));
  const Gate without = MakeGate("consistency { asynchronous {} }", {MakeRoster(0, {0, 1})});
  EXPECT_FALSE(without.IsTooStale(300));
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
    const Gate gate = MakeGate("consistency { bounded_staleness { bound: " + std::to_string(bound) + " } }",
                               {MakeRoster(0, {0, 1, 2})});
    EXPECT_TRUE(gate.bounded());
    EXPECT_EQ(gate.HighestClock(Pushes({9, 4, 7})), 4 + bound);
    EXPECT_EQ(gate.ClockOf(2, Pushes({9, 4, 7})), 7u);
  }
}

TEST(GateTest, ClocksOfTheIdleAndOfFormerIncarnationsDoNotCount) {
  const std::string bound = "consistency { bounded_staleness { bound: 1 } }";
  const Gate gate = MakeGate(bound, {WithIdle(MakeRoster(0, {0, 1, 2}), {1})});
  EXPECT_EQ(gate.HighestClock(Pushes({9, 4, 7})), 8u);
  const Gate new_life = MakeGate(bound, {RosterOfLives(0, {{0, IncarnationOf(0)}, {1, 50}})});
  EXPECT_EQ(new_life.ClockOf(1, Pushes({9, 4})), 0u);
  EXPECT_EQ(new_life.HighestClock(Pushes({9, 4})), 1u);
}

TEST(GateTest, ClocksBeginWhereTheMasterSays) {
  v1::Roster roster = MakeRoster(0, {0, 1});
  roster.mutable_members(1)->set_clock(30);
  const Gate gate = MakeGate("consistency { bounded_staleness { bound: 1 } }", {roster});
  EXPECT_EQ(gate.ClockOf(1, Pushes({35, 2})), 32u);
  EXPECT_EQ(gate.HighestClock(Pushes({35, 2})), 33u);
}

TEST(GateTest, WhereNobodyHasWorkNobodyIsHeldUp) {
  const Gate gate =
      MakeGate("consistency { bounded_staleness { bound: 1 } }", {WithIdle(MakeRoster(0, {0}), {0})});
  EXPECT_EQ(gate.HighestClock(Pushes({9})), UINT64_MAX);
}

TEST(GateTest, ActiveMembersAreThoseOfTheVersionThatHaveWork) {
  EXPECT_EQ(Synchronous({MakeRoster(0, {0}), MakeRoster(4, {0, 1, 2})}).ActiveMembers(3), 1u);
  EXPECT_EQ(Synchronous({MakeRoster(0, {0}), MakeRoster(4, {0, 1, 2})}).ActiveMembers(4), 3u);
  EXPECT_EQ(MakeGate("", {WithIdle(MakeRoster(0, {0, 1, 2}), {1})}).ActiveMembers(77), 2u);
}

}  // namespace
}  // namespace catchment
