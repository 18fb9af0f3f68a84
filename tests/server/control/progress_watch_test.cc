#include "server/control/progress_watch.h"

#include <gtest/gtest.h>

namespace catchment {
namespace {

using Verdict = ProgressWatch::Verdict;
using Work = ProgressWatch::Work;

constexpr uint64_t kWorker = 7;

TEST(ProgressWatchTest, WorkerWithoutProgressIsNoticedAfterThreeLeasesAndStuckAfterTheLimit) {
  ProgressWatch watch(/*stuck_seconds=*/300, /*heartbeat_timeout_seconds=*/10);
  const Work work = {.to_do = true, .granted = 8, .reported = 3, .answered = 3, .mean_step_seconds = 0.1};
  EXPECT_EQ(watch.Observe(kWorker, work, 100), Verdict::kFine);
  EXPECT_EQ(watch.Observe(kWorker, work, 129), Verdict::kFine);
  EXPECT_EQ(watch.SecondsWithout(kWorker, 129), 0);
  EXPECT_EQ(watch.Observe(kWorker, work, 130), Verdict::kNoProgress);
  EXPECT_EQ(watch.SecondsWithout(kWorker, 131), 31);
  EXPECT_EQ(watch.Observe(kWorker, work, 399), Verdict::kNoProgress);
  EXPECT_EQ(watch.Observe(kWorker, work, 400), Verdict::kStuck);
}

TEST(ProgressWatchTest, AnyProgressBeginsTheTimeAnew) {
  for (uint64_t Work::*steps : {&Work::granted, &Work::reported, &Work::answered}) {
    ProgressWatch watch(300, 10);
    Work work = {.to_do = true, .granted = 8, .reported = 3, .answered = 3};
    watch.Observe(kWorker, work, 0);
    EXPECT_EQ(watch.Observe(kWorker, work, 299), Verdict::kNoProgress);
    ++(work.*steps);
    EXPECT_EQ(watch.Observe(kWorker, work, 300), Verdict::kFine);
    EXPECT_EQ(watch.Observe(kWorker, work, 329), Verdict::kFine);
  }
}

TEST(ProgressWatchTest, WhoWaitsForItsTurnToSaveItsStateIsNotStuckWhileOthersSaveTheirs) {
  ProgressWatch watch(300, 10);
  Work work = {.to_do = true};
  watch.Observe(kWorker, work, 0);
  for (int saved = 1; saved <= 3; ++saved) {
    EXPECT_EQ(watch.Observe(kWorker, work, 200 * saved - 1), Verdict::kNoProgress);
    work.states_saved = saved;
    EXPECT_EQ(watch.Observe(kWorker, work, 200 * saved), Verdict::kFine);
  }
  EXPECT_EQ(watch.Observe(kWorker, work, 900), Verdict::kStuck);
}

TEST(ProgressWatchTest, WhoHasNothingToDoOrWaitsForOthersIsNeverStuck) {
  ProgressWatch watch(300, 10);
  watch.Observe(kWorker, {.to_do = true}, 0);
  EXPECT_EQ(watch.Observe(kWorker, {.to_do = false}, 1000), Verdict::kFine);
  EXPECT_EQ(watch.Observe(kWorker, {.to_do = true}, 1029), Verdict::kFine) << "its time begins with its work";
}

TEST(ProgressWatchTest, LongStepsHaveLongerLimits) {
  ProgressWatch watch(300, 10);
  const Work work = {.to_do = true, .mean_step_seconds = 60};
  watch.Observe(kWorker, work, 0);
  EXPECT_EQ(watch.Observe(kWorker, work, 599), Verdict::kFine);
  EXPECT_EQ(watch.Observe(kWorker, work, 600), Verdict::kNoProgress);
  EXPECT_EQ(watch.Observe(kWorker, work, 1199), Verdict::kNoProgress);
  EXPECT_EQ(watch.Observe(kWorker, work, 1200), Verdict::kStuck);
}

TEST(ProgressWatchTest, ProcessThatComesBackHasTwiceThePatience) {
  ProgressWatch watch(300, 10);
  const Work work = {.to_do = true, .process = "node:7"}, other = {.to_do = true, .process = "node:8"};
  for (const double limit : {300, 600, 1200}) {
    EXPECT_EQ(watch.Limit(work), limit);
    watch.NoteStuck("node:7");
  }
  EXPECT_EQ(watch.Limit(other), 300);
  for (int i = 0; i < 1000; ++i) watch.NoteStuck("node:7");
  EXPECT_LT(watch.Limit(work), 1e9);
  EXPECT_EQ(ProgressWatch(0, 10).Limit(work), 0) << "never";
}

TEST(ProgressWatchTest, AddressOfASecondStuckWorkerIsBarredForTwiceTheTimeAndMore) {
  ProgressWatch watch(300, 10);
  watch.Bar("a", 300, 1, 2, 1000);
  EXPECT_EQ(watch.BarredFor("a", 1000), 0) << "it may only have been slow";
  watch.Bar("a", 600, 2, 3, 2000);
  EXPECT_EQ(watch.BarredFor("a", 2000), 1200);
  EXPECT_EQ(watch.BarredFor("a", 3100), 100);
  EXPECT_EQ(watch.BarredFor("a", 3200), 0);
  EXPECT_EQ(watch.BarredFor("b", 2000), 0);
  watch.Bar("a", 300, 3, 4, 4000);
  EXPECT_EQ(watch.BarredFor("a", 4000), 1200)
      << "under another name the limit is the first again, the pause is not";
}

TEST(ProgressWatchTest, WhoVanishesHasHeldUpTheOthersUnlessItWorkedForTenTimesAsLong) {
  ProgressWatch watch(300, 10);
  EXPECT_EQ(watch.SecondsVanished(kWorker, /*heard_at=*/95, 105), 10) << "it was never seen with work";
  Work work = {.to_do = true, .granted = 8};
  watch.Observe(kWorker, work, 100);
  EXPECT_EQ(watch.SecondsVanished(kWorker, 100, 110), 10) << "servers have answered nothing";
  work.answered = 1;
  watch.Observe(kWorker, work, 150);
  EXPECT_EQ(watch.SecondsVanished(kWorker, 150, 156), 6) << "it has worked for 50 s";
  EXPECT_EQ(watch.SecondsVanished(kWorker, 150, 155), 0);
  work.to_do = false;
  watch.Observe(kWorker, work, 151);
  EXPECT_EQ(watch.SecondsVanished(kWorker, 151, 200), 0) << "nobody waits for it";
  for (uint64_t worker = 1; worker <= 5; ++worker)
    watch.Bar("a", 10, worker, worker + 1, 1000, /*vanished=*/true);
  EXPECT_EQ(watch.BarredFor("a", 1000), 200);
}

// Eight workers of a machine compile for longer than the limit: each comes back, with twice the time.
TEST(ProgressWatchTest, WorkersThatStartSlowlyTogetherBarTheirAddressOnce) {
  ProgressWatch watch(300, 10);
  for (uint64_t worker = 1; worker <= 8; ++worker) watch.Bar("a", 300, worker, 9, 1000);
  EXPECT_EQ(watch.BarredFor("a", 1000), 0);
  for (uint64_t worker = 9; worker <= 16; ++worker) watch.Bar("a", 600, worker, 17, 2000);
  EXPECT_EQ(watch.BarredFor("a", 2000), 1200);
}

TEST(ProgressWatchTest, TimeOfAStepIsThatOfTheServersAnswers) {
  ProgressWatch watch(300, 10);
  Work work = {.to_do = true, .granted = 8, .answered = 4};
  watch.Observe(kWorker, work, 100);
  EXPECT_EQ(watch.SecondsPerAnswer(kWorker), 0);
  work.answered = 6;
  watch.Observe(kWorker, work, 150);
  EXPECT_EQ(watch.SecondsPerAnswer(kWorker), 25);
  watch.Observe(kWorker, work, 400);
  EXPECT_EQ(watch.SecondsPerAnswer(kWorker), 25) << "waiting does not make a step longer";
  EXPECT_EQ(watch.SecondsPerAnswer(kWorker + 1), 0);
}

TEST(ProgressWatchTest, LimitsStayDoubledInAMasterThatContinues) {
  ProgressWatch watch(300, 10), next(300, 10);
  watch.NoteStuck("node:7");
  watch.NoteStuck("node:7");
  next.Restore(watch.times_stuck());
  EXPECT_EQ(next.Limit({.to_do = true, .process = "node:7"}), 1200);
  EXPECT_EQ(next.Limit({.to_do = true, .process = "node:8"}), 300);
}

TEST(ProgressWatchTest, PausesOfTheMasterDoNotCount) {
  ProgressWatch watch(300, 10);
  watch.Observe(kWorker, {.to_do = true}, 0);
  watch.Extend(1000);
  EXPECT_EQ(watch.Observe(kWorker, {.to_do = true}, 1029), Verdict::kFine);
}

TEST(ProgressWatchTest, LimitOfZeroRemovesNoWorker) {
  ProgressWatch watch(0, 10);
  watch.Observe(kWorker, {.to_do = true}, 0);
  EXPECT_EQ(watch.Observe(kWorker, {.to_do = true}, 1e9), Verdict::kNoProgress);
  EXPECT_EQ(watch.Limit({.to_do = true, .mean_step_seconds = 60}), 0)
      << "no limit is named where there is none";
}

}  // namespace
}  // namespace catchment
