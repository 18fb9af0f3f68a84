// Tests `catchment compare` with daemons that follow a script (tests/cli/fake_server.cc, and shell scripts
// for workers).
#include "cli/compare/compare.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/compare/compare_directory.h"
#include "cli/compare/local_launcher.h"
#include "common/job/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CompareTest : public ::testing::Test {
 protected:
  CompareTest()
      : root_(::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    options_.job = "examples/mnist_mlp.textproto";
    options_.algorithms = {"sync", "downpour"};
    options_.workers = {1};
    options_.seeds = 2;
    options_.budget.samples = 1000;
    options_.search = SearchKind::kNone;
    options_.out = root_ + "/out";
    options_.args = {options_.job, "--out=" + options_.out};
    bounds_.poll = 0.05;
    setenv("FAKE_MASTER", "", 1);
    Worker("touch $RUN/finish");
  }
  ~CompareTest() override {
    unsetenv("FAKE_MASTER");
    unsetenv("FAKE_SUMMARY");
  }

  // Sets the script of every worker and evaluator. RUN is the directory of the run, which the script derives
  // from the path of its log.
  void Worker(const std::string& body) {
    const std::string path = root_ + "/worker.sh";
    std::ofstream(path) << "#!/bin/sh\nLOG=$(readlink /proc/$$/fd/1)\nRUN=${LOG%/logs/*}\n"
                        << "case $LOG in */worker-0.log) echo ${RUN##*/} >>" << root_
                        << "/trained;; *) exit 0;; esac\n"
                        << body << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }

  int Compare() {
    out_.str("");
    err_.str("");
    fs::remove(root_ + "/trained");
    // A master of a run that is trained again awaits its worker.
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(options_.out, error)) {
      if (entry.path().filename() == "finish") fs::remove(entry.path());
    }
    const std::string server = std::string(std::getenv("TEST_SRCDIR")) + "/catchment/tests/cli/fake_server";
    SignalWaiter signals;
    LocalLauncher launcher(options_, {server, root_ + "/worker.sh"}, bounds_, &signals);
    const absl::StatusOr<int> exit_code = RunCompare(options_, &launcher, &signals, {&out_, &err_});
    err_ << exit_code.status().message();
    return exit_code.value_or(kExitFailed);
  }

  // Returns the names of runs whose worker was started by the last Compare.
  std::vector<std::string> Trained() const {
    return absl::StrSplit(ReadTextFile(root_ + "/trained").value_or(""), '\n', absl::SkipEmpty());
  }

  nlohmann::json Report() const {
    return nlohmann::json::parse(ReadTextFile(options_.out + "/report.json").value_or(""), nullptr, false);
  }

  const std::string root_;
  CompareOptions options_;
  TrainBounds bounds_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(CompareTest, EveryRunIsTrainedOnceAndReported) {
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_THAT(Trained(), ElementsAre("sync-1-workers-seed-1", "downpour-1-workers-seed-1",
                                     "sync-1-workers-seed-2", "downpour-1-workers-seed-2"));
  EXPECT_EQ(Report()["runs"].size(), 4u);
  EXPECT_TRUE(Report()["runs"][3]["done"].get<bool>());
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("[1/4] sync, 1 worker, seed 1: 50.00 %"), HasSubstr("s left"),
                                HasSubstr("[4/4] downpour"), HasSubstr(options_.out + "/report.html")));
  EXPECT_TRUE(fs::exists(options_.out + "/report.html"));
  EXPECT_FALSE(fs::exists(options_.out + "/runs/sync-1-workers-seed-1/checkpoints"));
}

TEST_F(CompareTest, SecondStartCarriesOutOnlyMissingRuns) {
  ASSERT_EQ(Compare(), 0) << err_.str();
  fs::remove_all(options_.out + "/runs/downpour-1-workers-seed-1");
  // A run that was killed has no summary.
  fs::remove(options_.out + "/runs/sync-1-workers-seed-2/summary.json");
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_THAT(Trained(), ElementsAre("downpour-1-workers-seed-1", "sync-1-workers-seed-2"));
  EXPECT_THAT(out_.str(), HasSubstr("2 of 4 runs are already done"));
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_THAT(Trained(), ElementsAre());
}

TEST_F(CompareTest, AResultOfAnotherJobDoesNotCount) {
  ASSERT_EQ(Compare(), 0) << err_.str();
  const std::string run = options_.out + "/runs/sync-1-workers-seed-1";
  std::ofstream(run + "/job.textproto", std::ios::app) << "# changed\n";
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_THAT(Trained(), ElementsAre("sync-1-workers-seed-1"));
}

TEST_F(CompareTest, AnotherComparisonInTheSamePlaceIsRefusedByName) {
  ASSERT_EQ(Compare(), 0) << err_.str();
  options_.seeds = 3;
  EXPECT_EQ(Compare(), 1);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("--seeds is 3, but was 2"), HasSubstr("choose another --out")));
  options_.seeds = 2;
  options_.set = {"batch_size=32"};
  EXPECT_EQ(Compare(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("the job has `batch_size: 32`, but had `batch_size: 64`"));
  EXPECT_THAT(Trained(), ElementsAre());
  options_.overwrite = true;
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_EQ(Trained().size(), 4u);
}

TEST_F(CompareTest, RunsOfOldDataAreDoneAgainWhenTheDataHaveChanged) {
  const std::vector<std::pair<std::string, std::string>> changes = {
      {R"("train_samples": 600, )", R"("train_samples": 300, )"},
      {R"("samples": 1200, "epochs": 2, )",
       R"("train_samples": 300, )"},  // an earlier version's, and this one's
      {R"("train_samples": 600, "test_samples": 60, )", R"("train_samples": 600, "test_samples": 50, )"},
      {R"("train_samples": 600, "data_checksum": "a1", )",
       R"("train_samples": 600, "data_checksum": "b2", )"}};
  for (const auto& [old_data, new_data] : changes) {
    options_.overwrite = true;
    setenv("FAKE_SUMMARY", old_data.c_str(), 1);
    Worker("case $RUN in */sync-1-workers-seed-2) exit 1;; esac; touch $RUN/finish");
    EXPECT_EQ(Compare(), 1) << "a run is missing";
    options_.overwrite = false;
    setenv("FAKE_SUMMARY", new_data.c_str(), 1);
    Worker("touch $RUN/finish");
    EXPECT_EQ(Compare(), 0) << err_.str();
    EXPECT_THAT(Trained(), ElementsAre("sync-1-workers-seed-2", "sync-1-workers-seed-1",
                                       "downpour-1-workers-seed-1", "downpour-1-workers-seed-2"))
        << new_data;
    EXPECT_THAT(out_.str(), HasSubstr("the data have changed: ")) << new_data;
    EXPECT_EQ(Compare(), 0) << err_.str();
    EXPECT_THAT(Trained(), ElementsAre()) << "they stay done";
  }
}

TEST_F(CompareTest, SearchesOfOldDataAreDoneAgain) {
  options_.algorithms = {"downpour"};
  options_.seeds = 1;
  options_.search = SearchKind::kHalving;
  setenv("FAKE_SUMMARY", R"("train_samples": 600, )", 1);
  Worker("case $RUN in */runs/*) exit 1;; esac; touch $RUN/finish");
  EXPECT_EQ(Compare(), 1) << "the searches are done";
  setenv("FAKE_SUMMARY", R"("train_samples": 300, )", 1);
  Worker("touch $RUN/finish");
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_EQ(Trained().size(), 1u + 11u + 3u);
}

TEST_F(CompareTest, FilesOfTheUserAreNeverTakenForAComparison) {
  fs::create_directories(options_.out + "/runs");
  std::ofstream(options_.out + "/runs/events.log") << "TensorBoard's";
  for (const bool overwrite : {false, true}) {
    options_.overwrite = overwrite;
    EXPECT_EQ(Compare(), 1);
    EXPECT_THAT(err_.str(), HasSubstr(options_.out + "/runs was not written by Catchment"));
  }
  fs::remove_all(options_.out + "/runs");
  ASSERT_EQ(Compare(), 0) << err_.str();
  const std::string note = options_.out + "/runs/sync-1-workers-seed-1/notes.txt";
  std::ofstream(note) << "mine";
  std::ofstream(options_.out + "/report.md") << "mine";
  options_.seeds = 1;
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_TRUE(fs::exists(note) && fs::exists(options_.out + "/report.md"));
  EXPECT_FALSE(fs::exists(options_.out + "/runs/sync-1-workers-seed-2/summary.json")) << "an earlier run";
}

TEST_F(CompareTest, AnotherTargetIsOnlyAnotherReport) {
  ASSERT_EQ(Compare(), 0) << err_.str();
  options_.target = 0.25;
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_THAT(Trained(), ElementsAre());
  EXPECT_EQ(Report()["target"]["test_accuracy"], 0.25);
}

TEST_F(CompareTest, ARunThatFailsIsReportedAndTheOthersGoOn) {
  Worker("case $RUN in */downpour-1-workers-seed-1) echo out of memory; exit 1;; esac; touch $RUN/finish");
  EXPECT_EQ(Compare(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("1 of 4 runs failed"));
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("out of memory"), HasSubstr("[4/4]")));
  EXPECT_FALSE(Report()["runs"][1]["done"].get<bool>());
  Worker("touch $RUN/finish");
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_THAT(Trained(), ElementsAre("downpour-1-workers-seed-1"));
}

TEST_F(CompareTest, ASignalEndsItInOrderAndItGoesOnLater) {
  Worker("case $RUN in */sync-1-workers-seed-2) kill -INT $PPID; exec sleep 1000;; esac; touch $RUN/finish");
  bounds_.end = 0.2;  // nothing tells this worker to end
  EXPECT_EQ(Compare(), 128 + SIGINT);
  EXPECT_THAT(err_.str(), HasSubstr("the same command continues with the missing runs"));
  EXPECT_FALSE(fs::exists(options_.out + "/report.json")) << "a report of a part";
  bounds_.end = TrainBounds().end;
  Worker("touch $RUN/finish");
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_THAT(Trained(), ElementsAre("sync-1-workers-seed-2", "downpour-1-workers-seed-2"));
}

TEST_F(CompareTest, ABudgetInSecondsStopsEachRunAndThatIsItsEnd) {
  options_.budget = {0, 0.2};
  options_.seeds = 1;
  Worker("until [ -e $RUN/summary.json ]; do sleep 0.02; done");
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_TRUE(Report()["runs"][0]["done"].get<bool>());
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_THAT(Trained(), ElementsAre()) << "stopped by its budget it is done";
}

TEST_F(CompareTest, SearchTakesThePresetsOwnTrialIfNoneIsBetterAndIsNotRepeated) {
  options_.algorithms = {"downpour"};
  options_.seeds = 1;
  options_.search = SearchKind::kHalving;
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_EQ(Trained().size(), 11u + 3u + 1u);
  ASSERT_EQ(Report()["search"].size(), 14u);
  // All have the same score, and the first is chosen.
  EXPECT_TRUE(Report()["search"][11]["chosen"].get<bool>());
  EXPECT_EQ(Report()["search"][11]["seed"], 2);
  EXPECT_NEAR(Report()["standings"][0]["momentum"].get<double>(), 0.8, 1e-6);
  EXPECT_NEAR(Report()["standings"][0]["learning_rate"].get<double>(), 0.03, 1e-6);
  EXPECT_NEAR(Report()["standings"][0]["search_cost"].get<double>(), 1, 1e-9);
  EXPECT_THAT(out_.str(), HasSubstr("downpour, 1 worker, learning rate 0.03, momentum 0.8: 50.00 %"));
  EXPECT_THAT(Report()["answer"]["sentence"].get<std::string>(), Not(HasSubstr("not tuned")));
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_THAT(Trained(), ElementsAre());
}

TEST_F(CompareTest, TrialsThatFailLoseAndIfAllDoTheRateIsThePresets) {
  options_.algorithms = {"downpour"};
  options_.seeds = 1;
  options_.search = SearchKind::kHalving;
  Worker("case $RUN in */search/*) echo diverged; exit 1;; esac; touch $RUN/finish");
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_EQ(Trained().size(), 11u + 1u);
  for (const auto& trial : Report()["search"]) EXPECT_FALSE(trial["chosen"].get<bool>());
  EXPECT_NEAR(Report()["standings"][0]["learning_rate"].get<double>(), 0.03, 1e-6);
}

TEST_F(CompareTest, WithoutASearchTheAnswersFirstSentenceSaysSo) {
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_THAT(Report()["answer"]["sentence"].get<std::string>(),
              ::testing::StartsWith("Learning rates come from the job and the presets and were not tuned"));
  EXPECT_EQ(Report()["search"].size(), 0u);
  EXPECT_TRUE(Report()["standings"][0]["search_cost"].is_null());
}

TEST_F(CompareTest, OverwriteDeletesNoManifestsBehindALink) {
  EXPECT_EQ(Compare(), 0) << err_.str();
  fs::create_directory(root_ + "/mine");
  std::ofstream(root_ + "/mine/run.yaml") << "mine";
  fs::create_directory_symlink(root_ + "/mine", options_.out + "/runs/sync-1-workers-seed-1/manifests");
  options_.overwrite = true;
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_EQ(ReadTextFile(root_ + "/mine/run.yaml").value_or(""), "mine");
}

TEST_F(CompareTest, DryRunPrintsThePlanAndWritesNothing) {
  options_.dry_run = true;
  options_.search = SearchKind::kHalving;
  options_.algorithms = {"sync", "hybrid"};
  options_.workers = {1, 2};
  EXPECT_EQ(Compare(), 0) << err_.str();
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("sync, 1 worker, seed 1: learning rate"),
                    HasSubstr("hybrid, 2 workers, seed 2:"), HasSubstr("hybrid, 1 worker: left out: "),
                    HasSubstr("6 runs, after searches for 3 learning"), HasSubstr("nothing was started")));
  EXPECT_THAT(Trained(), ElementsAre());
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(CompareTest, ErrorsOfAnyJobAreReportedBeforeTheFirstRun) {
  options_.algorithms = {"sync", "hybrid"};
  EXPECT_EQ(Compare(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("hybrid supports none of --workers"));
  EXPECT_THAT(Trained(), ElementsAre());
}

}  // namespace
}  // namespace catchment
