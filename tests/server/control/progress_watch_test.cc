#include "server/control/progress_watch.h"

#include <gtest/gtest.h>

namespace catchment {
namespace {

using Verdict = ProgressWatch::Verdict;
using Work = ProgressWatch::Work;

constexpr uint64_t kWorker = 7;

TEST(ProgressWatchTest, WorkerWithoutProgressIsNoticedAfterThreeLeasesAndStuckAfterTheLimit) {
  ProgressWatch watch(/*stuck_seconds=*/300, /*hold_up_seconds=*/20, /*heartbeat_timeout_seconds=*/10);
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
    ProgressWatch watch(300, 20, 10);
    Work work = {.to_do = true, .granted = 8, .reported = 3, .answered = 3};
    watch.Observe(kWorker, work, 0);
    EXPECT_EQ(watch.Observe(kWorker, work, 299), Verdict::kNoProgress);
    ++(work.*steps);
    EXPECT_EQ(watch.Observe(kWorker, work, 300), Verdict::kFine);
    EXPECT_EQ(watch.Observe(kWorker, work, 329), Verdict::kFine);
  }
}

TEST(ProgressWatchTest, WhoWaitsForItsTurnToSaveItsStateIsNotStuckWhileOthersSaveTheirs) {
  ProgressWatch watch(300, 20, 10);
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
  ProgressWatch watch(300, 20, 10);
  watch.Observe(kWorker, {.to_do = true}, 0);
  EXPECT_EQ(watch.Observe(kWorker, {.to_do = false}, 1000), Verdict::kFine);
  EXPECT_EQ(watch.Observe(kWorker, {.to_do = true}, 1029), Verdict::kFine) << "its time begins with its work";
}

TEST(ProgressWatchTest, LongStepsHaveLongerLimits) {
  ProgressWatch watch(300, 20, 10);
  const Work work = {.to_do = true, .mean_step_seconds = 60};
  watch.Observe(kWorker, work, 0);
  EXPECT_EQ(watch.Observe(kWorker, work, 599), Verdict::kFine);
  EXPECT_EQ(watch.Observe(kWorker, work, 600), Verdict::kNoProgress);
  EXPECT_EQ(watch.Observe(kWorker, work, 1199), Verdict::kNoProgress);
  EXPECT_EQ(watch.Observe(kWorker, work, 1200), Verdict::kStuck);
}

TEST(ProgressWatchTest, ProcessThatComesBackHasTwiceThePatience) {
  ProgressWatch watch(300, 20, 10);
  const Work work = {.to_do = true, .process = "node:7"}, other = {.to_do = true, .process = "node:8"};
  for (const double limit : {300, 600, 1200}) {
    EXPECT_EQ(watch.Limit(kWorker, work), limit);
    watch.NoteStuck("node:7");
  }
  EXPECT_EQ(watch.Limit(kWorker, other), 300);
  for (int i = 0; i < 1000; ++i) watch.NoteStuck("node:7");
  EXPECT_LT(watch.Limit(kWorker, work), 1e9);
  EXPECT_EQ(ProgressWatch(0, 20, 10).Limit(kWorker, work), 0) << "never";
}

TEST(ProgressWatchTest, AddressOfASecondStuckWorkerIsBarredForTwiceTheTimeAndMore) {
  ProgressWatch watch(300, 20, 10);
  watch.Bar("a", 300, 1, 2, 1000, /*awaited=*/false);
  EXPECT_EQ(watch.BarredFor("a", 1000), 0) << "it may only have been slow";
  watch.Bar("a", 600, 2, 3, 2000, /*awaited=*/false);
  EXPECT_EQ(watch.BarredFor("a", 2000), 1200);
  EXPECT_EQ(watch.BarredFor("a", 3100), 100);
  EXPECT_EQ(watch.BarredFor("a", 3200), 0);
  EXPECT_EQ(watch.BarredFor("b", 2000), 0);
  watch.Bar("a", 300, 3, 4, 4000, /*awaited=*/false);
  EXPECT_EQ(watch.BarredFor("a", 4000), 1200)
      << "under another name the limit is the first again, the pause is not";
}

TEST(ProgressWatchTest, WhoVanishesHasHeldUpTheOthersUnlessItWorkedForTenTimesAsLong) {
  ProgressWatch watch(300, 20, 10);
  EXPECT_EQ(watch.SecondsHeldUp(kWorker, /*heard_at=*/95, 105), 10) << "it was never seen with work";
  Work work = {.to_do = true, .granted = 8};
  watch.Observe(kWorker, work, 100);
  EXPECT_EQ(watch.SecondsHeldUp(kWorker, 100, 110), 10) << "servers have answered nothing";
  work.answered = 1;
  watch.Observe(kWorker, work, 150);
  EXPECT_EQ(watch.SecondsHeldUp(kWorker, 150, 156), 6) << "it has worked for 50 s";
  EXPECT_EQ(watch.SecondsHeldUp(kWorker, 150, 155), 0);
  work.to_do = false;
  watch.Observe(kWorker, work, 151);
  EXPECT_EQ(watch.SecondsHeldUp(kWorker, 151, 200), 0) << "nobody waits for it";
  for (uint64_t worker = 1; worker <= 5; ++worker)
    watch.Bar("a", 10, worker, worker + 1, 1000, /*awaited=*/true);
  EXPECT_EQ(watch.BarredFor("a", 1000), 200);
}

// Eight workers of a machine compile for longer than the limit: each comes back, with twice the time.
TEST(ProgressWatchTest, WorkersThatStartSlowlyTogetherBarTheirAddressOnce) {
  ProgressWatch watch(300, 20, 10);
  for (uint64_t worker = 1; worker <= 8; ++worker) watch.Bar("a", 300, worker, 9, 1000, /*awaited=*/false);
  EXPECT_EQ(watch.BarredFor("a", 1000), 0);
  for (uint64_t worker = 9; worker <= 16; ++worker) watch.Bar("a", 600, worker, 17, 2000, /*awaited=*/false);
  EXPECT_EQ(watch.BarredFor("a", 2000), 1200);
}

TEST(ProgressWatchTest, TimeOfAStepIsThatOfTheServersAnswers) {
  ProgressWatch watch(300, 20, 10);
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
  ProgressWatch watch(300, 20, 10), next(300, 20, 10);
  watch.NoteStuck("node:7");
  watch.NoteStuck("node:7");
  next.Restore(watch.times_stuck());
  EXPECT_EQ(next.Limit(kWorker, {.to_do = true, .process = "node:7"}), 1200);
  EXPECT_EQ(next.Limit(kWorker, {.to_do = true, .process = "node:8"}), 300);
}

TEST(ProgressWatchTest, PausesOfTheMasterDoNotCount) {
  ProgressWatch watch(300, 20, 10);
  watch.Observe(kWorker, {.to_do = true}, 0);
  watch.Extend(1000);
  EXPECT_EQ(watch.Observe(kWorker, {.to_do = true}, 1029), Verdict::kFine);
}

// Returns the second at which the watch considers the worker stuck, if it is idle from 100 on and the other
// waits from `waits_from` on.
int StuckAt(ProgressWatch* watch, const Work& work, int waits_from) {
  for (int second = 100; second < 2000; ++second) {
    watch->Observe(kWorker + 1, {.to_do = second < waits_from, .reported = static_cast<uint64_t>(second)},
                   second);
    if (watch->Observe(kWorker, work, second) == Verdict::kStuck) return second - 100;
  }
  return 0;
}

TEST(ProgressWatchTest, WorkerThatHoldsUpOthersHasAShorterLimit) {
  const Work work = {.to_do = true, .process = "node:7"};
  ProgressWatch watch(300, 20, 10);
  EXPECT_EQ(StuckAt(&watch, work, 100), 20);
  watch.NoteStuck("node:7");
  watch.Forget(kWorker);
  EXPECT_EQ(StuckAt(&watch, work, 100), 40) << "it registers again";
  EXPECT_TRUE(watch.IsAwaited(kWorker));
  EXPECT_EQ(watch.SecondsHeldUp(kWorker, 0, 140), 40);
  ProgressWatch nobody_waits(300, 20, 10), waits_late(300, 20, 10), shorter(15, 20, 10);
  EXPECT_EQ(StuckAt(&nobody_waits, work, 2000), 300);
  EXPECT_FALSE(nobody_waits.IsAwaited(kWorker));
  EXPECT_EQ(StuckAt(&waits_late, work, 150), 50);
  EXPECT_EQ(StuckAt(&shorter, work, 100), 15);
}

TEST(ProgressWatchTest, WorkersThatLeaveOrEvaluateDoNotWait) {
  ProgressWatch watch(300, 20, 10);
  watch.Observe(kWorker + 1, {.to_do = false}, 0);
  watch.Observe(kWorker + 2, {.to_do = false, .trains = false}, 0);
  watch.Observe(kWorker, {.to_do = true}, 0);
  EXPECT_TRUE(watch.IsAwaited(kWorker));
  watch.Observe(kWorker + 3, {.to_do = true, .trains = false}, 0);
  EXPECT_FALSE(watch.IsAwaited(kWorker + 3)) << "an evaluation may be as long as it likes";
  watch.Forget(kWorker + 1);
  watch.Observe(kWorker, {.to_do = true}, 1);
  EXPECT_FALSE(watch.IsAwaited(kWorker));
}

TEST(ProgressWatchTest, OthersWaitForTenTimesTheirOwnLongestStep) {
  ProgressWatch watch(300, 20, 10);
  watch.Observe(kWorker + 1, {.to_do = true}, 94);
  EXPECT_EQ(StuckAt(&watch, {.to_do = true}, 100), 60) << "the other has needed 6 s";
  ProgressWatch capped(300, 20, 10);
  capped.Observe(kWorker + 1, {.to_do = true}, 50);
  EXPECT_EQ(StuckAt(&capped, {.to_do = true}, 100), 300);
  ProgressWatch own(300, 20, 10);
  own.Observe(kWorker, {.to_do = true}, 40);
  own.Observe(kWorker, {.to_do = true, .reported = 1}, 100);
  EXPECT_EQ(StuckAt(&own, {.to_do = true, .reported = 1}, 100), 20)
      << "a member cannot lengthen its own limit";
}

TEST(ProgressWatchTest, WorkerMayHoldUpOthersForATenthOfItsWork) {
  ProgressWatch watch(300, 20, 10);
  watch.Observe(kWorker, {.to_do = true}, 100 - 500);
  watch.Observe(kWorker, {.to_do = true, .answered = 900}, 100);
  EXPECT_EQ(StuckAt(&watch, {.to_do = true, .answered = 900}, 100), 50);
  EXPECT_EQ(watch.SecondsHeldUp(kWorker, 0, 150), 0) << "it does not count against its address";
}

TEST(ProgressWatchTest, LimitOfZeroRemovesNoWorker) {
  ProgressWatch watch(0, 20, 10);
  watch.Observe(kWorker, {.to_do = true}, 0);
  EXPECT_EQ(watch.Observe(kWorker, {.to_do = true}, 1e9), Verdict::kNoProgress);
  EXPECT_EQ(watch.Limit(kWorker, {.to_do = true, .mean_step_seconds = 60}), 0)
      << "no limit is named where there is none";
}

}  // namespace
}  // namespace catchment
