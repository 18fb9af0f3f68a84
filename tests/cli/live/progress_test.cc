#include "cli/live/progress.h"

#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/outputs/progress_log.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::JobStatus Training() {
  v1::JobStatus status;
  status.set_phase(v1::JobStatus::TRAINING);
  status.set_epochs(1.318);
  status.set_samples(79104);
  status.set_total_samples(300000);
  status.set_samples_per_second(1912.4);
  status.set_seconds_left(115.5);
  status.set_train_loss(0.18312);
  status.set_has_accuracy(true);
  status.set_train_accuracy(0.9451);
  status.set_staleness_mean(0.984);
  status.set_staleness_p99(2);
  status.set_wall_seconds(41);
  return status;
}

v1::JobStatus Scored(double accuracy) {
  v1::JobStatus status = Training();
  status.set_test_samples(10000);
  status.set_test_accuracy(accuracy);
  status.set_test_loss(0.05);
  status.set_tested_at_samples(73200);  // 1.22 epochs
  status.set_tested_at_seconds(38);
  return status;
}

TEST(ProgressLineTest, SaysAllInOneLine) {
  EXPECT_EQ(ProgressLine(Training()),
            "26 % | 1 min 56 s left | loss 0.1831 | 1,912/s | train 94.51 % | epoch 1.32 | "
            "79,104/300,000 samples | staleness 0.98, p99 2");
}

TEST(ProgressLineTest, LeavesOutThePartsThatDoNotFit) {
  EXPECT_EQ(ProgressLine(Scored(0.9876), 60), "26 % | test 98.76 % | 1 min 56 s left | loss 0.1831");
  EXPECT_EQ(ProgressLine(Scored(0.9876), 20), "26 % | test 98.76 %");
}

TEST(ProgressLineTest, TheShareOfARunInSecondsIsThatOfItsTime) {
  v1::JobStatus status = Training();
  status.clear_total_samples();
  EXPECT_THAT(ProgressLine(status), ::testing::StartsWith("26 % | "));
  status.clear_seconds_left();
  EXPECT_THAT(ProgressLine(status), Not(::testing::StartsWith("26 %")));
}

TEST(ProgressLineTest, HasTheTestAccuracyOnceThereIsOne) {
  EXPECT_THAT(ProgressLine(Scored(0.9876)), HasSubstr("26 % | test 98.76 % |"));
}

TEST(ProgressLineTest, HasNoTimeLeftWhileTheRateIsUnknown) {
  v1::JobStatus status = Training();
  status.set_samples_per_second(0);
  EXPECT_THAT(ProgressLine(status), Not(HasSubstr("left")));
  EXPECT_THAT(ProgressLine(status), Not(HasSubstr("/s")));
}

TEST(ProgressLineTest, HasTheReasonForWaiting) {
  v1::JobStatus status;
  status.set_phase(v1::JobStatus::WAITING);
  EXPECT_EQ(ProgressLine(status), "waiting");
  status.set_reason("waiting for workers: 1 of 2 are here");
  EXPECT_EQ(ProgressLine(status), "waiting for workers: 1 of 2 are here");
  status.set_phase(v1::JobStatus::FINISHING);
  status.set_reason("last checkpoint");
  EXPECT_EQ(ProgressLine(status), "finishing: last checkpoint");
}

TEST(FitLineTest, CutsAtTheTerminalsEdge) {
  EXPECT_EQ(FitLine("abcdef", 6), "abcdef");
  EXPECT_EQ(FitLine("abcdef", 4), "abc…");
  EXPECT_EQ(FitLine("ééé", 2), "é…");
  EXPECT_EQ(FitLine("abcdef", 0), "abcdef");
}

TEST(ProgressPrinterTest, AwayFromATerminalWritesOnlyScoresAndNotes) {
  std::ostringstream out;
  ProgressPrinter printer(&out, [] { return ScreenSize(); });
  printer.Update(Training());
  EXPECT_EQ(out.str(), "");
  printer.Update(Scored(0.98));
  printer.Update(Scored(0.98));
  printer.Note("note");
  printer.Update(Scored(0.99));
  printer.Clear();
  EXPECT_EQ(out.str(), EvaluationLine(Scored(0.98)) + "\nnote\n" + EvaluationLine(Scored(0.99)) + "\n");
}

TEST(ProgressPrinterTest, OnATerminalRedrawsOneLineAndTakesItAwayForNotes) {
  std::ostringstream out;
  ProgressPrinter printer(&out, [] { return ScreenSize{100, 24}; });
  printer.Update(Training());
  const std::string line = "━━━━━━────────────────── " + ProgressLine(Training(), 87);
  EXPECT_EQ(out.str(), "\r\x1b[K" + line);
  printer.Note("note");
  EXPECT_EQ(out.str(), "\r\x1b[K" + line + "\r\x1b[Knote\n");
}

TEST(EvaluationLineTest, HasTheEpochSamplesAndTimeOfTheWeightsThatWereScored) {
  EXPECT_EQ(EvaluationLine(Scored(0.9876)),
            "epoch 1.22: test accuracy 98.76 % | test loss 0.0500 | 38 s | 1,912/s | "
            "73,200/300,000 samples | staleness 0.98, p99 2");
  EXPECT_EQ(EvaluationLine(Scored(0.9876), 40), "epoch 1.22: test accuracy 98.76 % | 38 s");
}

TEST(ProgressLineTest, OfRealTargetsThereIsTheLossAlone) {
  v1::JobStatus status = Scored(0);
  status.set_has_accuracy(false);
  EXPECT_EQ(EvaluationLine(status),
            "epoch 1.22: test loss 0.0500 | 38 s | 1,912/s | 73,200/300,000 samples | staleness 0.98, p99 2");
  EXPECT_THAT(ProgressLine(status), ::testing::StartsWith("26 % | test loss 0.0500 | "));
  EXPECT_THAT(ProgressLine(status), Not(HasSubstr("train")));
}

TEST(ProgressLogTest, HasALineForEveryTenthOfTheBudgetAndForEachScore) {
  ProgressLog log(/*now=*/1000);
  v1::JobStatus status = Scored(0.98);
  std::vector<ProgressLog::Entry> entries;
  for (uint64_t samples = 0; samples <= 300000; samples += 1000) {
    if (!log.IsDue(samples, 1000)) continue;
    status.set_samples(samples);
    for (const ProgressLog::Entry& entry : log.Entries(status, /*scored=*/false, 1000))
      entries.push_back(entry);
  }
  ASSERT_EQ(entries.size(), 10u);
  EXPECT_THAT(entries.front().line, HasSubstr("30,000/300,000 samples"));
  entries = log.Entries(status, /*scored=*/true, 1001);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].event, "evaluation");
  EXPECT_EQ(entries[0].line, EvaluationLine(status));
}

TEST(ProgressLogTest, HasALineAMinuteAlsoWithoutABudgetInSamples) {
  ProgressLog log(/*now=*/1000);
  v1::JobStatus status = Training();
  status.set_total_samples(0);
  EXPECT_TRUE(log.IsDue(64, 1001)) << "the budget is not known yet";
  EXPECT_TRUE(log.Entries(status, false, 1001).empty());
  EXPECT_FALSE(log.IsDue(1 << 30, 1060));
  EXPECT_TRUE(log.IsDue(1 << 30, 1061));
  EXPECT_EQ(log.Entries(status, false, 1061).size(), 1u);
  v1::JobStatus waiting;
  waiting.set_reason("waiting for workers: 1 of 2 have registered");
  ProgressLog other(/*now=*/0);
  EXPECT_FALSE(other.IsDue(0, 59));
  const std::vector<ProgressLog::Entry> entries = other.Entries(waiting, false, 60);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].line, waiting.reason());
}

}  // namespace
}  // namespace catchment
