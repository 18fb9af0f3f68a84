#include "cli/compare/report_runs.h"

#include <filesystem>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/base/run_directory.h"
#include "common/job/algorithm_facts.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "common/program/command_line.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns a complete job. `units`: of the first of two dense layers.
v1::Job Job(const std::string& more, int units = 10) {
  v1::Job job;
  const std::string text =
      absl::StrCat("name: 'job' data { drawn_digits {} } epochs: 1 model { layers { flatten {} } ",
                   "layers { dense { units: ", units, " } } layers { dense { units: 10 } } } ",
                   absl::StrContains(more, "workers:") ? "" : "workers: 2 ", more);
  EXPECT_TRUE(ParseText(text, "job", "", &job).ok());
  const absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(job);
  EXPECT_TRUE(complete.ok()) << complete.status();
  return *complete;
}

class ReportRunsTest : public testing::Test {
 protected:
  ReportRunsTest() : root_(testing::TempDir() + "/report_runs") { std::filesystem::remove_all(root_); }

  // Writes what a run leaves and returns its directory.
  std::string Run(const std::string& name, const v1::Job& job, double accuracy,
                  const std::string& phase = "DONE", const std::string& reason = "") const {
    const std::string directory = root_ + "/" + name;
    std::filesystem::create_directories(directory);
    EXPECT_TRUE(WriteFile(directory + "/job.textproto", JobText(job)).ok());
    EXPECT_TRUE(
        WriteFile(directory + "/summary.json", absl::StrCat(R"({"phase": ")", phase, R"(", "reason": ")",
                                                            reason, R"(", "wall_seconds": 10, "samples": 100,
                                       "samples_per_second": 10, "servers": 2, "test_accuracy": )",
                                                            accuracy, "}"))
            .ok());
    EXPECT_TRUE(
        WriteFile(
            directory + "/metrics.jsonl",
            absl::StrCat(R"({"test_accuracy": )", accuracy,
                         R"(, "test_loss": 1, "tested_at_seconds": 10, "tested_at_samples": 100})", "\n"))
            .ok());
    return directory;
  }

  int Report(std::vector<std::string> args) {
    args.push_back("--out=" + root_ + "/report");
    return RunReportCommand(args, {.out = &out_, .err = &err_});
  }

  const std::string root_;
  std::ostringstream out_, err_;
};

TEST_F(ReportRunsTest, JobsAreNamedByPresetAndByWhatElseDiffers) {
  EXPECT_THAT(NameJobs({Job(""), Job("algorithm { preset: 'downpour' } seed: 3 workers: 4")}),
              ElementsAre("sync", "downpour"));
  EXPECT_THAT(NameJobs({Job(""), Job("optimizer { learning_rate: 0.25 }")}),
              ElementsAre("sync", "sync, learning_rate 0.25"));
  EXPECT_THAT(
      NameJobs({Job("algorithm { preset: 'diloco' } optimizer { learning_rate: 0.25 }"),
                Job("algorithm { preset: 'diloco' "
                    "contribution { pseudo_gradient { local_optimizer { learning_rate: 0.5 } } } }")}),
      ElementsAre("diloco, optimizer.learning_rate 0.25", "diloco, local_optimizer.learning_rate 0.5"));
  EXPECT_THAT(NameJobs({Job("batch_size: 16"), Job("algorithm { preset: 'easgd' } batch_size: 32")}),
              ElementsAre("sync, batch_size 16", "easgd, batch_size 32"));
  EXPECT_THAT(
      NameJobs({Job("checkpoint { every_seconds: 5 }"), Job("faults { heartbeat_timeout_seconds: 7 }")}),
      ElementsAre("sync", "sync"));
  EXPECT_THAT(NameJobs({Job(""), Job("faults { stragglers { worker: 1 slowdown_factor: 4 } }")}),
              ElementsAre("sync, without stragglers", "sync, stragglers [{ worker: 1 slowdown_factor: 4 }]"));
}

TEST_F(ReportRunsTest, ReportsRunsAndThoseOfAComparison) {
  const std::string single = Run("single", Job("algorithm { preset: 'downpour' } workers: 4"), 0.9);
  Run("comparison/runs/a", Job("seed: 1"), 0.95);
  Run("comparison/runs/b", Job("seed: 2"), 0.97);
  const absl::StatusOr<Comparison> comparison = CollectRuns({single, root_ + "/comparison"});
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_THAT(comparison->workers, ElementsAre(2, 4));
  EXPECT_EQ(comparison->seeds, 2);
  EXPECT_EQ(comparison->servers, 2);
  EXPECT_EQ(comparison->budget, "epochs:1");
  EXPECT_FALSE(comparison->machine.has_value());
  ASSERT_EQ(comparison->algorithms.size(), 2u);
  EXPECT_EQ(comparison->algorithms[0].name, "downpour");
  EXPECT_EQ(RunsOf(*comparison, "sync", 2).size(), 2u);

  EXPECT_EQ(Report({single, root_ + "/comparison", "--target=0.9"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("report.html"));
  const std::string page = *ReadTextFile(root_ + "/report/report.html");
  EXPECT_THAT(page, HasSubstr("catchment report " + single));
  EXPECT_THAT(page, testing::Not(HasSubstr("processor")));
}

TEST_F(ReportRunsTest, ARunThatFailedIsListedWithItsReason) {
  const std::string done = Run("done", Job(""), 0.9), failed = Run("failed", Job("seed: 2"), 0.9, "FAILED");
  EXPECT_EQ(Report({done, failed}), 0) << err_.str();
  EXPECT_THAT(*ReadTextFile(root_ + "/report/report.html"), HasSubstr("not done: FAILED"));
  EXPECT_EQ(Report({failed}), kExitFailed);
  EXPECT_THAT(err_.str(), HasSubstr("no run has finished"));
}

TEST_F(ReportRunsTest, ARunThatDivergedHasAReport) {
  EXPECT_EQ(Report({Run("diverged", Job(""), 0, "FAILED", kTrainingHasDiverged)}), 0) << err_.str();
  EXPECT_THAT(*ReadTextFile(root_ + "/report/report.html"), HasSubstr("training diverged in every run"));
}

TEST_F(ReportRunsTest, RefusesWhatIsNotARunAndWhatCannotBeCompared) {
  const std::string one = Run("one", Job(""), 0.9), same = Run("same", Job(""), 0.8);
  const std::string other = Run("other", Job("seed: 2", 12), 0.8);
  std::filesystem::create_directories(root_ + "/empty");
  EXPECT_EQ(Report({root_ + "/empty"}), kExitFailed);
  EXPECT_THAT(err_.str(), HasSubstr("empty contains neither a summary.json"));
  EXPECT_EQ(Report({root_ + "/none"}), kExitFailed);
  EXPECT_THAT(err_.str(), HasSubstr("none is not a directory"));
  EXPECT_EQ(Report({one, same}), kExitFailed);
  EXPECT_THAT(err_.str(), HasSubstr("are the same job (sync, 2 workers) with the same seed, 1"));
  EXPECT_EQ(Report({one, other}), kExitFailed);
  EXPECT_THAT(err_.str(), HasSubstr("train different models"));
  EXPECT_EQ(Report({}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("takes at least one DIR"));
  EXPECT_EQ(Report({one, "--target=97"}), kExitUsage);
}

}  // namespace
}  // namespace catchment
