// The command: its flags, its runs and its report.
#include "cli/simulate/simulate.h"

#include <glog/logging.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/base/run_directory.h"
#include "common/job/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cli/command_outcome.h"

namespace catchment {
namespace {

using testing::HasSubstr;
using testing::Not;

class SimulateTest : public testing::Test {
 protected:
  SimulateTest() : root_(testing::TempDir() + "/simulate") {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    WriteJob(
        "model { layers { flatten {} } layers { dense { units: 10 } } } "
        "data { drawn_digits { train_samples: 256 test_samples: 64 } } epochs: 2");
  }

  std::string job() const { return root_ + "/job.textproto"; }
  void WriteJob(const std::string& text) const {
    std::ofstream(job()) << "name: 'job' batch_size: 8 algorithm { preset: 'downpour' } " << text;
  }
  CommandOutcome Simulate(const std::string& out, std::vector<std::string> flags) const {
    flags.insert(flags.begin(), job());
    flags.push_back("--out=" + root_ + "/" + out);
    return RunToOutcome(RunSimulateCommand, flags);
  }
  std::string Read(const std::string& path) const { return ReadTextFile(root_ + "/" + path).value_or(""); }

  const std::string root_;
};

// Restricts the thread to one of its processors.
class OneProcessor {
 public:
  OneProcessor() {
    CHECK_EQ(sched_getaffinity(0, sizeof all_, &all_), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all_)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OneProcessor() { sched_setaffinity(0, sizeof all_, &all_); }

 private:
  cpu_set_t all_;
};

TEST_F(SimulateTest, WritesTheReportOfAComparison) {
  const CommandOutcome outcome =
      Simulate("out", {"--algorithms=sync,downpour,staleness_aware", "--workers=1,4",
                       "--step=lognormal:50ms:0.3", "--network=10Gbit:50us", "--straggler=3:2x"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("report.html"));
  const auto report = nlohmann::json::parse(Read("out/report.json"));
  EXPECT_EQ(report["runs"].size(), 6u);
  EXPECT_EQ(report["simulated"], "step lognormal:50ms:0.3, start exponential:50ms, network 10Gbit:50us");
  EXPECT_EQ(report["stragglers"][0], "3:2x");
  EXPECT_TRUE(report["machine"].is_null());
  for (const auto& run : report["runs"]) {
    EXPECT_TRUE(run["done"]) << run;
    EXPECT_EQ(run["samples"], 512) << run;
    EXPECT_GT(run["series"].size(), 5u) << run;
  }
  const std::string page = Read("out/report.html");
  EXPECT_THAT(page, HasSubstr("simulated: step lognormal:50ms:0.3"));
  EXPECT_THAT(page, HasSubstr("worker 3 slowed 2 times"));
}

TEST_F(SimulateTest, TheSameSeedGivesTheSameReport) {
  const std::vector<std::string> flags = {"--workers=1,8", "--step=gamma:50ms:4", "--seed=3"};
  ASSERT_EQ(Simulate("a", flags).code, 0);
  {
    // One run after another.
    const OneProcessor limit;
    ASSERT_EQ(Simulate("b", flags).code, 0);
  }
  EXPECT_EQ(Read("a/report.json"), Read("b/report.json"));
  EXPECT_THAT(Read("a/report.json"), HasSubstr("\"seed\": 3"));
  ASSERT_EQ(Simulate("c", {"--workers=1,8", "--step=gamma:50ms:4", "--seed=4"}).code, 0);
  EXPECT_NE(Read("a/report.json"), Read("c/report.json"));
}

TEST_F(SimulateTest, SearchesForTheLearningRateOfEachAlgorithmAndNumberOfWorkers) {
  const std::vector<std::string> flags = {"--search=halving", "--algorithms=sync,easgd", "--workers=1,2",
                                          "--step=constant:50ms", "--straggler=1:2x"};
  const CommandOutcome outcome = Simulate("a", flags);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("searching for 4 learning rates"));
  const auto report = nlohmann::json::parse(Read("a/report.json"));
  EXPECT_EQ(report["runs"].size(), 4u);
  for (const auto& standing : report["standings"]) {
    EXPECT_GT(standing["search_cost"], 0.5) << standing;
    EXPECT_LE(standing["search_cost"], 1.01) << standing;
    EXPECT_EQ(std::count_if(report["search"].begin(), report["search"].end(),
                            [&](const auto& trial) {
                              return trial["chosen"] && trial["algorithm"] == standing["algorithm"] &&
                                     trial["workers"] == standing["workers"] &&
                                     trial["learning_rate"] == standing["learning_rate"];
                            }),
              1)
        << standing;
  }
  for (const auto& trial : report["search"])
    EXPECT_NE(trial["seed"], report["runs"][0]["seed"]) << "another seed";
  EXPECT_THAT(std::string(report["answer"]["sentence"]), Not(HasSubstr("tuned")));
  ASSERT_EQ(Simulate("b", flags).code, 0);
  EXPECT_EQ(Read("a/report.json"), Read("b/report.json")) << "the same seed gives the same search";
}

TEST_F(SimulateTest, WithoutASearchTheAnswerSaysSo) {
  ASSERT_EQ(Simulate("none", {"--workers=2", "--step=constant:50ms"}).code, 0);
  const auto report = nlohmann::json::parse(Read("none/report.json"));
  EXPECT_TRUE(report["search"].empty());
  EXPECT_THAT(std::string(report["answer"]["sentence"]), testing::StartsWith("Learning rates"));
}

TEST_F(SimulateTest, WorkersBeginApartUnlessToldOtherwise) {
  const std::vector<std::string> flags = {"--workers=8", "--step=constant:50ms"};
  const auto seconds = [&](const std::string& out, const std::string& start) {
    std::vector<std::string> all = flags;
    if (!start.empty()) all.push_back("--start=" + start);
    EXPECT_EQ(Simulate(out, all).code, 0);
    return nlohmann::json::parse(Read(out + "/runs/downpour-8-workers-seed-1/summary.json"))["wall_seconds"]
        .get<double>();
  };
  const double together = seconds("none", "none");
  EXPECT_GT(seconds("usual", ""), together);
  EXPECT_GT(seconds("late", "constant:5s"), together + 4.9);
}

TEST_F(SimulateTest, ContinuesWithTheRunsThatAreMissing) {
  const std::vector<std::string> flags = {"--workers=1,2", "--step=constant:50ms"};
  ASSERT_EQ(Simulate("out", flags).code, 0);
  std::filesystem::remove_all(root_ + "/out/runs/downpour-2-workers-seed-1");
  const CommandOutcome again = Simulate("out", flags);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("1 of 2 runs are already done"));
  const CommandOutcome other = Simulate("out", {"--workers=1,2", "--step=constant:60ms"});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("holds another comparison"));
}

TEST_F(SimulateTest, SimulatesAQuadraticInPlaceOfAModel) {
  testing::internal::CaptureStderr();
  const CommandOutcome outcome = Simulate(
      "out", {"--workers=100", "--step=exponential:50ms", "--straggler=2%:10x", "--straggler=1%steps:5x",
              "--gradient=quadratic:10:0.1", "--servers=2", "--failures=10s:1s", "--budget=samples:8000"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "the log of simulated servers is not for people";
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto report = nlohmann::json::parse(Read("out/report.json"));
  EXPECT_EQ(report["runs"][0]["samples"], 8000);
  EXPECT_THAT(Read("out/report.html"), HasSubstr("2 % of the workers slowed 10 times"));
  v1::Job job;
  ASSERT_TRUE(ParseText(Read("out/runs/downpour-100-workers-seed-1/job.textproto"), "job", "", &job).ok());
  EXPECT_EQ(job.faults().stragglers_size(), 2);
}

TEST_F(SimulateTest, WorkersOfASyntheticModelFailFourTimesUnlessABudgetIsGiven) {
  WriteJob("model { synthetic { parameters: 100 } } data { synthetic { samples: 800 } } epochs: 1");
  const auto run = [&](const std::string& out, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--workers=2", "--step=constant:100ms"});
    const CommandOutcome outcome = Simulate(out, flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(absl::StrContains(outcome.out, "each run has 48 simulated seconds"), out == "long");
    return nlohmann::json::parse(Read(out + "/runs/downpour-2-workers-seed-1/summary.json"));
  };
  const auto failing = run("long", {"--failures=10s:2s"});
  EXPECT_NEAR(failing["wall_seconds"].get<double>(), 48, 2);
  EXPECT_LT(failing["goodput"].get<double>(), 0.95);
  EXPECT_EQ(nlohmann::json::parse(Read("long/report.json"))["budget"], "seconds:48");
  EXPECT_EQ(run("job", {})["samples"], 800) << "nobody fails";
  EXPECT_EQ(run("set", {"--failures=10s:2s", "--set=epochs=2"})["samples"], 1600);
  EXPECT_EQ(run("flag", {"--failures=10s:2s", "--budget=samples:400"})["samples"], 400);
}

TEST_F(SimulateTest, ARunThatDivergesIsAResult) {
  // A step of 1.5 / curvature is stable, but not 15 updates late.
  const std::vector<std::string> flags = {"--workers=1,16",
                                          "--step=constant:50ms",
                                          "--gradient=quadratic:2:0",
                                          "--budget=samples:160000",
                                          "--servers=2",
                                          "--set=optimizer={kind: SGD learning_rate: 1.5 momentum: 0}"};
  const CommandOutcome outcome = Simulate("out", flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 of 2 runs diverged: downpour with 16 workers, seed 1"));
  const auto runs = nlohmann::json::parse(Read("out/report.json"))["runs"];
  EXPECT_TRUE(runs[0]["done"] && !runs[0]["diverged"]) << runs[0];
  EXPECT_TRUE(!runs[1]["done"] && runs[1]["diverged"]) << runs[1];
  const CommandOutcome again = Simulate("out", flags);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("2 of 2 runs are already done"));
}

TEST_F(SimulateTest, ALoneRunThatDivergesHasAReport) {
  const CommandOutcome outcome = Simulate(
      "out", {"--workers=16", "--step=constant:50ms", "--gradient=quadratic:2:0", "--budget=samples:160000",
              "--target=0.9", "--set=optimizer={kind: SGD learning_rate: 1.5 momentum: 0}"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 of 1 run diverged: downpour with 16 workers, seed 1"));
  const auto report = nlohmann::json::parse(Read("out/report.json"));
  EXPECT_EQ(report["runs"][0]["diverged"], true);
  EXPECT_THAT(std::string(report["answer"]["sentence"]),
              HasSubstr("with 16 workers, training diverged in every run"));
  EXPECT_THAT(Read("out/report.html"), HasSubstr("training diverged in every run"));
}

TEST_F(SimulateTest, TakesStepTimesFromARun) {
  ASSERT_EQ(Simulate("first", {"--workers=2", "--step=constant:80ms", "--network=unlimited:1ms"}).code, 0);
  const CommandOutcome outcome =
      Simulate("second", {"--workers=4", "--from=" + root_ + "/first/runs/downpour-2-workers-seed-1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(Read("second/report.json"), HasSubstr("step constant:80"));
}

TEST_F(SimulateTest, RefusesWhatItCannotParseWithTheAcceptedForms) {
  struct Case {
    std::string flag;
    std::string reason;
  };
  for (const Case& one :
       {Case{"--step=50ms", "lognormal:MEAN:SIGMA"}, Case{"--start=late", "or none"},
        Case{"--network=10Gbit", "BANDWIDTH:LATENCY"}, Case{"--straggler=some:2x", "SHARE%:TIMESx"},
        Case{"--failures=often", "MEAN:AWAY"}, Case{"--gradient=cubic", "quadratic:CONDITION:NOISE"},
        Case{"--straggler=70:2x", "no run has a worker 70"}, Case{"--set=workers=8", "--workers=8"}}) {
    const CommandOutcome outcome = Simulate("out", {one.flag});
    EXPECT_EQ(outcome.code, 2) << one.flag;
    EXPECT_THAT(outcome.err, HasSubstr(one.flag));
    EXPECT_THAT(outcome.err, HasSubstr(one.reason));
  }
}

TEST_F(SimulateTest, NamesWhatIsMissing) {
  const CommandOutcome step = Simulate("a", {"--workers=2"});
  EXPECT_EQ(step.code, 1);
  EXPECT_THAT(step.err, HasSubstr("--step"));
  EXPECT_EQ(step.out, "");
  EXPECT_FALSE(std::filesystem::exists(root_ + "/a"));
  const CommandOutcome from = Simulate("b", {"--workers=2", "--from=" + root_ + "/nothing"});
  EXPECT_EQ(from.code, 1);
  EXPECT_THAT(from.err, HasSubstr("summary.json"));
}

TEST_F(SimulateTest, SaysHowManyWorkersFit) {
  WriteJob("model { synthetic { parameters: 2000000000 } } data { synthetic { samples: 1000 } } epochs: 1");
  const CommandOutcome outcome = Simulate("out", {"--workers=1,10000"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("workers fit"));
  EXPECT_THAT(outcome.err, HasSubstr("quadratic"));
  EXPECT_FALSE(std::filesystem::exists(root_ + "/out/compare.json"));
}

TEST_F(SimulateTest, HelpTeaches) {
  std::ostringstream text, errors;
  EXPECT_EQ(RunSimulateCommand({"--help"}, {&text, &errors}), 0);
  for (const char* word : {"Examples:", "--step=", "--start=", "--network=", "--straggler=", "--failures=",
                           "--gradient=", "--from=", "lognormal:MEAN:SIGMA", "Exit code"}) {
    EXPECT_THAT(text.str(), HasSubstr(word));
  }
  EXPECT_THAT(text.str(), Not(HasSubstr("--program")));
}

}  // namespace
}  // namespace catchment
