#include "server/control/command_schedule.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

namespace catchment {
namespace {

constexpr int kFew = 10;  // workers

CommandSchedule::Wanted At(uint64_t generation, v1::JobStatus::Phase phase = v1::JobStatus::TRAINING) {
  return {.generation = generation, .phase = phase};
}

v1::ShardReport ReportAt(uint64_t generation) {
  v1::ShardReport report;
  report.set_generation(generation);
  return report;
}

// Commands the server and takes its answer; what the command carried, or nothing where none was due.
std::optional<CommandSchedule::Content> Command(CommandSchedule* schedule, int server,
                                                const CommandSchedule::Wanted& wanted, int workers = kFew) {
  const auto content = schedule->Begin(server, wanted, workers);
  const v1::ShardReport report = ReportAt(wanted.generation);
  if (content) schedule->End(server, &report);
  return content;
}

TEST(CommandScheduleTest, AServerIsCommandedAtOnceWhenSomethingChangesAndOtherwiseWithTheNextTick) {
  CommandSchedule schedule(1);
  CommandSchedule::Wanted wanted = At(1);
  EXPECT_TRUE(schedule.IsDueAtOnce(0, wanted));
  EXPECT_TRUE(Command(&schedule, 0, wanted));
  EXPECT_FALSE(schedule.IsDueAtOnce(0, wanted));
  EXPECT_FALSE(Command(&schedule, 0, wanted));
  schedule.Tick();
  EXPECT_FALSE(schedule.IsDueAtOnce(0, wanted));
  EXPECT_TRUE(Command(&schedule, 0, wanted));
  for (const auto& change : std::vector<std::function<void()>>{
           [&] { wanted.generation = 2; }, [&] { wanted.checkpoint = 7; }, [&] { wanted.stop = true; },
           [&] { wanted.phase = v1::JobStatus::FINISHING; }}) {
    change();
    EXPECT_TRUE(schedule.IsDueAtOnce(0, wanted));
    EXPECT_TRUE(Command(&schedule, 0, wanted));
    EXPECT_FALSE(Command(&schedule, 0, wanted));
  }
}

TEST(CommandScheduleTest, AServerThatHangsIsLeftAloneAndDelaysNoOther) {
  CommandSchedule schedule(2);
  ASSERT_TRUE(schedule.Begin(0, At(1), kFew));
  for (uint64_t generation = 2; generation < 5; ++generation) {
    schedule.Tick();
    EXPECT_FALSE(schedule.IsDueAtOnce(0, At(generation)));
    EXPECT_FALSE(schedule.Begin(0, At(generation), kFew));
    EXPECT_TRUE(Command(&schedule, 1, At(generation)));
  }
  const v1::ShardReport late = ReportAt(1);
  schedule.End(0, &late);
  EXPECT_TRUE(schedule.IsDueAtOnce(0, At(4)));
  EXPECT_TRUE(schedule.Begin(0, At(4), kFew)->rosters);
}

TEST(CommandScheduleTest, AFailedCommandIsTriedAgainAtTheNextTickInFull) {
  CommandSchedule schedule(1);
  ASSERT_TRUE(Command(&schedule, 0, At(1)));
  ASSERT_TRUE(schedule.Begin(0, At(2), kFew));
  schedule.End(0, nullptr);
  EXPECT_FALSE(schedule.IsDueAtOnce(0, At(2)));
  EXPECT_FALSE(schedule.IsDueAtOnce(0, At(3))) << "the server may be gone: it is not asked without a pause";
  EXPECT_FALSE(schedule.Begin(0, At(3), kFew));
  schedule.Tick();
  const auto content = schedule.Begin(0, At(3), kFew);
  ASSERT_TRUE(content);
  EXPECT_TRUE(content->rosters);
}

TEST(CommandScheduleTest, AServerThatFailedToAnswerInTimeHasMoreOfItUpToALimit) {
  CommandSchedule schedule(1);
  const auto next = [&schedule](bool stop) {
    schedule.Tick();
    CommandSchedule::Wanted wanted = At(1);
    wanted.stop = stop;
    const auto content = schedule.Begin(0, wanted, kFew);
    return content ? content->answer_seconds : 0;
  };
  for (const double expected : {5.0, 10.0, 20.0, 20.0}) {
    EXPECT_EQ(next(/*stop=*/false), expected);
    schedule.End(0, nullptr);
  }
  EXPECT_EQ(next(/*stop=*/true), 5) << "the stop of a job is soon repeated";
  const v1::ShardReport report = ReportAt(1);
  schedule.End(0, &report);
  EXPECT_EQ(next(/*stop=*/false), 5);
}

TEST(CommandScheduleTest, RostersAreSentUntilTheyAreAcknowledged) {
  CommandSchedule schedule(1);
  EXPECT_TRUE(Command(&schedule, 0, At(3))->rosters);
  schedule.Tick();
  EXPECT_FALSE(Command(&schedule, 0, At(3))->rosters);
  EXPECT_TRUE(schedule.Begin(0, At(4), kFew)->rosters);
  const v1::ShardReport behind = ReportAt(3);
  schedule.End(0, &behind);
  schedule.Tick();
  EXPECT_TRUE(Command(&schedule, 0, At(4))->rosters) << "it has not acknowledged them";
  schedule.Forget(0);
  EXPECT_TRUE(Command(&schedule, 0, At(4))->rosters) << "another process knows of nothing";
}

TEST(CommandScheduleTest, AReplacedServersCommandUnderWayIsAwaited) {
  CommandSchedule schedule(1);
  ASSERT_TRUE(schedule.Begin(0, At(1), kFew));
  schedule.Forget(0);
  EXPECT_FALSE(schedule.Begin(0, At(1), kFew));
  schedule.End(0, nullptr);
  schedule.Tick();
  EXPECT_TRUE(schedule.Begin(0, At(1), kFew));
}

// The number of calls over some ticks, and of the statistics in their answers.
struct Load {
  int calls = 0;
  int64_t statistics = 0;
  std::vector<int> commands;         // by server
  std::vector<int> with_statistics;  // calls, by server
};

Load RunTicks(CommandSchedule* schedule, int servers, int workers, int ticks, v1::JobStatus::Phase phase) {
  Load load;
  load.commands.resize(servers);
  load.with_statistics.resize(servers);
  for (int t = 0; t < ticks; ++t) {
    schedule->Tick();
    for (int s = 0; s < servers; ++s) {
      const auto content = Command(schedule, s, At(1, phase), workers);
      if (!content) continue;
      ++load.calls;
      ++load.commands[s];
      if (!content->statistics) continue;
      load.statistics += workers;
      ++load.with_statistics[s];
    }
  }
  return load;
}

TEST(CommandScheduleTest, AFewServersAndWorkersReportEverythingInEveryTick) {
  CommandSchedule schedule(8);
  const Load load = RunTicks(&schedule, 8, 100, 100, v1::JobStatus::TRAINING);
  EXPECT_EQ(load.calls, 8 * 100);
  EXPECT_EQ(load.statistics, 8 * 100 * 100);
}

TEST(CommandScheduleTest, ManyServersAndWorkersNeedABoundedNumberOfCalls) {
  constexpr int kServers = 64, kWorkers = 2000, kTicks = 1000;
  CommandSchedule schedule(kServers);
  const Load load = RunTicks(&schedule, kServers, kWorkers, kTicks, v1::JobStatus::TRAINING);
  EXPECT_LE(load.calls, (kTicks + kServers) * CommandSchedule::kServersPerTick);
  EXPECT_LE(load.statistics, int64_t{kTicks + kServers} * CommandSchedule::kStatisticsPerTick);
  for (int s = 0; s < kServers; ++s) {
    EXPECT_GE(load.with_statistics[s], kTicks / kServers / 2) << "every server has its turn: " << s;
  }
}

// Each report has a mark for each worker.
TEST(CommandScheduleTest, ManyWorkersAreReportedOfLessOftenByAllServersInTurn) {
  constexpr int kServers = 64, kWorkers = 2000, kTicks = 1000;
  CommandSchedule schedule(kServers);
  RunTicks(&schedule, kServers, kWorkers, 1, v1::JobStatus::TRAINING);  // all hear of the generation
  const Load load = RunTicks(&schedule, kServers, kWorkers, kTicks, v1::JobStatus::TRAINING);
  const int64_t most = int64_t{kTicks} * CommandSchedule::kMarksPerTick;
  EXPECT_LE(int64_t{load.calls} * kWorkers, most);
  EXPECT_GE(int64_t{load.calls} * kWorkers, most / 2);
  const int one = load.calls / kServers;
  for (int s = 0; s < kServers; ++s) EXPECT_NEAR(load.commands[s], one, 1) << "server " << s;
}

TEST(CommandScheduleTest, OutsideTrainingStatisticsComeWithEveryReport) {
  CommandSchedule schedule(64);
  RunTicks(&schedule, 64, 2000, 10, v1::JobStatus::TRAINING);
  const Load load = RunTicks(&schedule, 64, 2000, 5, v1::JobStatus::FINISHING);
  EXPECT_EQ(load.calls, 64 * 5);
  EXPECT_EQ(load.statistics, int64_t{64} * 5 * 2000);
}

TEST(CommandScheduleTest, StatisticsOfALostAnswerAreAskedForAgain) {
  constexpr int kWorkers = 100 * CommandSchedule::kStatisticsPerTick;
  CommandSchedule schedule(1);
  const auto first = schedule.Begin(0, At(1), kWorkers);
  ASSERT_TRUE(first && first->statistics);
  schedule.End(0, nullptr);
  bool again = false;
  for (int t = 0; t < 200 && !again; ++t) {
    schedule.Tick();
    const auto content = Command(&schedule, 0, At(1), kWorkers);
    again = content && content->statistics;
  }
  EXPECT_TRUE(again);
}

}  // namespace
}  // namespace catchment
