#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/report/findings.h"
#include "cli/report/markup.h"
#include "cli/report/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/report/made_comparison.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Page(const Comparison& comparison) { return ReportPage(comparison, Find(comparison)); }

TEST(ReportPage, BeginsWithTheAnswer) {
  const Comparison comparison = MadeComparison();
  EXPECT_THAT(Page(comparison), HasSubstr(EscapeXml(Answer(comparison, Find(comparison)))));
}

TEST(ReportPage, LoadsNothing) {
  // Nothing is loaded from a namespace's name.
  const std::string page = absl::StrReplaceAll(Page(MadeComparison()), {{"http://www.w3.org/2000/svg", ""}});
  for (const char* word : {"http:", "https:", "<script", "<link", "<img", "@import", "src=", "url(h"}) {
    EXPECT_THAT(page, Not(HasSubstr(word)));
  }
}

TEST(ReportPage, FitsNarrowWindowsAndPaper) {
  EXPECT_THAT(Page(MadeComparison()), AllOf(HasSubstr("<meta name=\"viewport\" content=\"width=device-width"),
                                            HasSubstr("<pre class=\"command\">catchment compare job \\\n"),
                                            HasSubstr("<pre class=\"job\">name: ")));
}

TEST(ReportPage, HasEveryPictureWithItsAxes) {
  EXPECT_THAT(
      Page(MadeComparison()),
      AllOf(HasSubstr("Test accuracy over time, 4 workers"), HasSubstr("seconds of training"),
            HasSubstr("Test accuracy over samples, 1 worker"), HasSubstr("Time to 98.0 % test accuracy"),
            HasSubstr("Test accuracy at the end"), HasSubstr("98.0 % test accuracy over workers"),
            HasSubstr("Speed-up against one worker"), HasSubstr("ideal"),
            HasSubstr("Staleness of contributions"), HasSubstr("workers' time went")));
  EXPECT_THAT(Page(MadeComparison()), AllOf(HasSubstr("Bytes on the wire"), HasSubstr("added by staleness"),
                                            HasSubstr("Where synchronous wins"), HasSubstr("a processor")));
}

TEST(ReportPage, OneNumberOfWorkersHasNoChartsOverWorkers) {
  Comparison comparison = MadeComparison();
  comparison.workers = {4};
  std::erase_if(comparison.runs, [](const RunResult& run) { return run.workers != 4; });
  EXPECT_THAT(Page(comparison),
              AllOf(Not(HasSubstr("Test accuracy at the end")), Not(HasSubstr("accuracy over workers"))));
}

TEST(ReportPage, AccuracyAtTheEndIsBetweenRoundNumbers) {
  const Comparison comparison = MadeComparison();  // from 96.01 to 98.03 %
  const std::string chart = AccuracyAtTheEnd(comparison, Find(comparison));
  EXPECT_THAT(chart, AllOf(HasSubstr(">96.0 %<"), HasSubstr(">98.5 %<"), Not(HasSubstr(">95.5 %<"))));
}

TEST(ReportPage, TimesToTheTargetAreDrawnIfAllRunsReachedIt) {
  Comparison comparison = MadeComparison();
  comparison.wanted_target = 0.9;
  const auto parts = [&] {
    const std::string chart = TimeToTargetOverWorkers(comparison, Find(comparison));
    return std::vector<std::string>(absl::StrSplit(chart, LookOf(1).color)).size();
  };
  const size_t all = parts();
  comparison.runs.back() = MadeRun("downpour", 4, 3, 4, 0.5);
  EXPECT_EQ(parts(), all - 1) << "downpour has no marker at 4 workers";
}

TEST(ReportPage, ShowsWhatTheSearchesFoundAndAtWhichCost) {
  Comparison comparison = MadeComparison();
  EXPECT_THAT(Page(comparison), AllOf(HasSubstr("job, preset or --set"), Not(HasSubstr("All trials"))));
  AddSearch(&comparison);
  EXPECT_THAT(Page(comparison), AllOf(HasSubstr("0.90 runs"), HasSubstr("diverged"), HasSubstr("chosen"),
                                      HasSubstr("30.00 %"), HasSubstr("seed 4, which no run above uses")));
  comparison.searched.back().chosen = false;
  EXPECT_THAT(Page(comparison), HasSubstr("no trial of the search trained"));
}

TEST(ReportPage, TextOfUsersIsEscaped) {
  Comparison comparison = MadeComparison();
  comparison.job = "name: \"<script>\"";
  EXPECT_THAT(Page(comparison), AllOf(HasSubstr("&lt;script&gt;"), Not(HasSubstr("<script>"))));
}

TEST(ReportPage, NothingIsNotANumber) {
  Comparison comparison = MadeComparison();
  EXPECT_THAT(Page(comparison),
              AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf,")), Not(HasSubstr("\"inf"))));
  for (RunResult& run : comparison.runs) {
    run.scores.clear();
    run.accuracy.reset();
    run.compute_seconds = run.pull_seconds = run.bytes_pushed = run.bytes_pulled = 0;
  }
  EXPECT_THAT(Page(comparison),
              AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf,")), Not(HasSubstr("\"inf"))));
}

}  // namespace
}  // namespace catchment
