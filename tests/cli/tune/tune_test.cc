// The command with simulated runs: its flags, its trials, its files, and how it continues.
#include "cli/tune/tune.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/job/job_text.h"
#include "common/job/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cli/command_outcome.h"

namespace catchment {
namespace {

using testing::HasSubstr;

class TuneTest : public testing::Test {
 protected:
  TuneTest() : root_(testing::TempDir() + "/tune") {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    std::ofstream(job())
        << "name: 'job' batch_size: 8 workers: 2 samples: 8000 model { layers { flatten {} } layers "
           "{ dense { units: 10 } } } data { drawn_digits { train_samples: 256 test_samples: 64 } } "
           "optimizer { kind: SGD momentum: 0 learning_rate: 0.1 schedule { decay: CONSTANT } }";
  }

  std::string job() const { return root_ + "/job.textproto"; }
  CommandOutcome Tune(const std::string& out, std::vector<std::string> flags) const {
    flags.insert(flags.begin(), job());
    flags.push_back("--out=" + root_ + "/" + out);
    return RunToOutcome(RunTuneCommand, flags);
  }
  std::string Read(const std::string& path) const { return ReadTextFile(root_ + "/" + path).value_or(""); }

  // With curvatures of at most 1, gradient descent diverges from a learning rate of 2 on.
  const std::vector<std::string> quadratic_ = {"--simulate",
                                               "--step=constant:50ms",
                                               "--gradient=quadratic:10:0",
                                               "--over=optimizer.learning_rate=log:0.0001..10",
                                               "--over=batch_size=4..16",
                                               "--trials=9"};
  const std::string root_;
};

TEST_F(TuneTest, FindsALearningRateAndWritesItsJob) {
  const CommandOutcome outcome = Tune("out", quadratic_);
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("The best of 9 trials is trial"));
  const auto report = nlohmann::json::parse(Read("out/report.json"));
  ASSERT_EQ(report["rungs"].size(), 3u);
  EXPECT_EQ(report["rungs"][0]["runs"].size(), 9u);
  EXPECT_EQ(report["rungs"][1]["runs"].size(), 3u);
  EXPECT_EQ(report["rungs"][2]["runs"].size(), 1u);
  EXPECT_NEAR(report["rungs"][0]["runs"][0]["samples"].get<double>(), 8000.0 / 9, 16);
  EXPECT_NEAR(report["rungs"][2]["runs"][0]["samples"].get<double>(), 8000, 16);
  EXPECT_EQ(report["best"]["trial"], report["rungs"][2]["runs"][0]["trial"]);
  const absl::StatusOr<v1::Job> best = LoadJob(root_ + "/out/best.textproto");
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_GT(best->optimizer().learning_rate(), 0.005);
  EXPECT_LT(best->optimizer().learning_rate(), 2);
  EXPECT_GE(best->batch_size(), 4u);
  EXPECT_LE(best->batch_size(), 16u);
  EXPECT_EQ(best->samples(), 8000u);
  const std::string page = Read("out/report.html");
  EXPECT_THAT(page, HasSubstr("11.11 % of the budget"));
  EXPECT_THAT(page, HasSubstr("share of the variance"));
  EXPECT_THAT(page, HasSubstr("<svg"));
}

TEST_F(TuneTest, ContinuesWithTheRunsThatAreMissing) {
  ASSERT_EQ(Tune("out", quadratic_).code, 0);
  const std::string report = Read("out/report.json");
  std::filesystem::remove_all(root_ + "/out/runs/trial-2-rung-1");
  std::filesystem::remove(root_ + "/out/report.json");
  const CommandOutcome again = Tune("out", quadratic_);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("8 of 9 runs are already done"));
  EXPECT_EQ(Read("out/report.json"), report);
  std::vector<std::string> other = quadratic_;
  other.back() = "--trials=10";
  const CommandOutcome refused = Tune("out", other);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("--trials is 10, but was 9"));
}

TEST_F(TuneTest, TrainsTheJobsModelWithEachAlgorithm) {
  const CommandOutcome outcome = Tune("out", {"--simulate", "--step=lognormal:50ms:0.3", "--workers=3",
                                              "--over=algorithm.preset=sync,downpour,easgd",
                                              "--budget=samples:512", "--trials=3", "--set=optimizer={}"});
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  const auto report = nlohmann::json::parse(Read("out/report.json"));
  EXPECT_EQ(report["trials"][0]["settings"]["algorithm.preset"], "downpour");
  EXPECT_EQ(report["trials"][1]["settings"]["algorithm.preset"], "sync");
  EXPECT_TRUE(report["importance"]["algorithm.preset"].is_null())
      << "three trials of three presets show none";
  const absl::StatusOr<v1::Job> best = LoadJob(root_ + "/out/best.textproto");
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_EQ(best->workers(), 3u);
  EXPECT_EQ(best->samples(), 512u);
}

TEST_F(TuneTest, NamesWhatIsWrong) {
  const std::string rate = "--over=optimizer.learning_rate=log:0.01..1";
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{}, "--over=PATH=RANGE is required"},
      {{"--over=optimizer.learing_rate=log:0.01..1"}, "learning_rate"},
      {{"--over=batch_size=1.2..1.8"}, "batch_size"},
      {{"--over=algorithm.preset=sync,downpoor", "--trials=2"}, "downpoor"},
      {{rate, rate}, "already has a range"},
      {{rate, "--over=workers=1..4"}, "is the same in all trials"},
      {{rate, "--step=constant:50ms"}, "add --simulate"},
      {{rate, "--simulate", "--straggler=5:2x", "--step=constant:1s"}, "no run has a worker 5"},
      {{rate, "--simulate", "--launcher=slurm"}, "--launcher"},
      {{rate, "--simulate"}, "step"},
      {{rate, "--set=workers=3"}, "--workers"},
  };
  for (const auto& [flags, reason] : wrong) {
    const CommandOutcome outcome = Tune("out", flags);
    EXPECT_NE(outcome.code, 0) << reason;
    EXPECT_THAT(outcome.err, HasSubstr(reason));
    EXPECT_FALSE(std::filesystem::exists(root_ + "/out/runs")) << reason;
  }
}

}  // namespace
}  // namespace catchment
