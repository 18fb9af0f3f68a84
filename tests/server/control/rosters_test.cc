#include "server/control/rosters.h"

#include <gtest/gtest.h>

namespace catchment {
namespace {

v1::ShardCommand CommandOf(const Rosters& rosters) {
  v1::ShardCommand command;
  rosters.Fill(&command);
  return command;
}

TEST(RostersTest, AsynchronousMembersShareOneRosterFromVersion0) {
  Rosters rosters(0);
  EXPECT_EQ(CommandOf(rosters).rosters_size(), 0);
  rosters.Join(1, 11, 0);
  rosters.Join(0, 12, 0);
  const v1::ShardCommand command = CommandOf(rosters);
  ASSERT_EQ(command.rosters_size(), 1);
  EXPECT_EQ(command.rosters(0).from_version(), 0u);
  ASSERT_EQ(command.rosters(0).members_size(), 2);
  EXPECT_EQ(command.rosters(0).members(0).worker(), 0u) << "by worker index";
  EXPECT_EQ(command.rosters(0).members(0).incarnation(), 12u);
}

TEST(RostersTest, EachChangeMakesAGeneration) {
  Rosters rosters(0);
  rosters.Join(0, 11, 0);
  EXPECT_EQ(rosters.generation(), 1u);
  rosters.Join(1, 12, 0);
  EXPECT_EQ(rosters.generation(), 2u);
  rosters.Remove(12);
  EXPECT_EQ(rosters.generation(), 3u);
  rosters.Remove(12);
  EXPECT_EQ(rosters.generation(), 3u) << "nothing changed";
}

TEST(RostersTest, KnowsSinceWhenAMemberIsIn) {
  Rosters rosters(0);
  rosters.Join(0, 11, 0);
  rosters.Join(1, 12, 0);
  EXPECT_EQ(rosters.Since(0, 11), 1u);
  EXPECT_EQ(rosters.Since(99, 12), 2u);
  EXPECT_FALSE(rosters.Since(0, 13));
}

TEST(RostersTest, WhoIsIdleAndHasWorkAgainIsInSinceThen) {
  Rosters rosters(0);
  rosters.Join(0, 11, 0);
  rosters.Join(1, 12, 7);
  EXPECT_EQ(CommandOf(rosters).rosters(0).members(1).clock(), 7u);
  rosters.SetIdle(12);
  EXPECT_EQ(rosters.generation(), 3u);
  EXPECT_FALSE(CommandOf(rosters).rosters(0).members(0).idle());
  EXPECT_TRUE(CommandOf(rosters).rosters(0).members(1).idle());
  EXPECT_EQ(rosters.Since(0, 12), 2u) << "it is a member still";
  rosters.SetActive(12, 30);
  EXPECT_EQ(rosters.generation(), 4u);
  EXPECT_FALSE(CommandOf(rosters).rosters(0).members(1).idle());
  EXPECT_EQ(CommandOf(rosters).rosters(0).members(1).clock(), 30u);
  EXPECT_EQ(rosters.Since(0, 12), 4u) << "a lease waits until all shards know";
}

TEST(RostersTest, WhatIsSoAlreadyMakesNoGeneration) {
  Rosters rosters(0);
  rosters.SetIdle(11);
  rosters.Join(0, 11, 5);
  rosters.SetActive(11, 30);
  EXPECT_EQ(rosters.generation(), 1u);
  EXPECT_EQ(CommandOf(rosters).rosters(0).members(0).clock(), 5u);
  rosters.SetIdle(11);
  rosters.SetIdle(11);
  rosters.SetIdle(99);
  EXPECT_EQ(rosters.generation(), 2u);
}

TEST(RostersTest, PlansBeginAtTheirVersionOnce) {
  Rosters rosters(0);
  rosters.Begin(0, {{0, 11}}, 0);
  rosters.Begin(16, {{0, 11}, {1, 12}}, 0);
  rosters.Begin(16, {{0, 11}, {1, 12}, {2, 13}}, 0);
  EXPECT_EQ(rosters.generation(), 2u);
  EXPECT_FALSE(rosters.Since(15, 12));
  EXPECT_EQ(rosters.Since(16, 12), 2u);
  EXPECT_FALSE(rosters.Since(16, 13));
}

TEST(RostersTest, AMemberThatGoesIsInNoRoster) {
  Rosters rosters(0);
  rosters.Begin(0, {{0, 11}}, 0);
  rosters.Begin(16, {{0, 11}, {1, 12}}, 0);
  rosters.Remove(11);
  const v1::ShardCommand command = CommandOf(rosters);
  ASSERT_EQ(command.rosters_size(), 2);
  EXPECT_EQ(command.rosters(0).members_size(), 0) << "an empty roster is left";
  EXPECT_EQ(command.rosters(1).members_size(), 1);
}

TEST(RostersTest, DropsRostersThatAllShardsHavePassed) {
  Rosters rosters(0);
  rosters.Begin(0, {{0, 11}}, 0);
  rosters.Begin(16, {{0, 11}}, 15);
  EXPECT_EQ(CommandOf(rosters).rosters_size(), 2);
  rosters.Begin(32, {{0, 11}}, 17);
  const v1::ShardCommand command = CommandOf(rosters);
  ASSERT_EQ(command.rosters_size(), 2);
  EXPECT_EQ(command.rosters(0).from_version(), 16u);
}

TEST(RostersTest, AResumedJobHasAnEmptyRosterForWhatIsMade) {
  Rosters rosters(40);
  EXPECT_EQ(CommandOf(rosters).rosters(0).members_size(), 0);
  rosters.Begin(40, {{0, 11}}, 39);
  EXPECT_EQ(CommandOf(rosters).rosters_size(), 2) << "a shard one version behind has to skip it";
  Rosters level(40);
  level.Begin(40, {{0, 11}}, 40);
  EXPECT_EQ(CommandOf(level).rosters_size(), 1);
}

}  // namespace
}  // namespace catchment
