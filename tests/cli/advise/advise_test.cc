// The command: what it takes, and its two forms of output.
#include "cli/advise/advise.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cli/command_outcome.h"

namespace catchment {
namespace {

using testing::HasSubstr;

class AdviseTest : public testing::Test {
 protected:
  AdviseTest() : root_(testing::TempDir() + "/advise") {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    std::ofstream(job()) << "name: 'job' batch_size: 8 workers: 4 epochs: 2 algorithm { preset: 'downpour' } "
                            "model { layers { flatten {} } layers { dense { units: 10 } } } "
                            "data { drawn_digits { train_samples: 256 test_samples: 64 } }";
  }
  std::string job() const { return root_ + "/job.textproto"; }
  static CommandOutcome Advise(const std::vector<std::string>& args) {
    return RunToOutcome(RunAdviseCommand, args);
  }

  const std::string root_;
};

// Returns the row of a preset with its own settings.
nlohmann::json RowOf(const nlohmann::json& advice, const std::string& preset) {
  for (const nlohmann::json& row : advice["trials"]["rows"]) {
    if (row["preset"] == preset && row["settings"] == "preset") return row;
  }
  return {};
}

TEST_F(AdviseTest, AdvisesOnAJob) {
  const CommandOutcome outcome =
      Advise({job(), "--step=lognormal:50ms:0.5", "--network=1Gbit:100us", "--workers=16"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string unwrapped = absl::StrReplaceAll(outcome.out, {{"\n  ", " "}});
  for (const char* part :
       {"lognormal:50ms:0.5", "1Gbit:100us", "With 16 workers", "the job's model on its data",
        "Use: ", "learning rate", "momentum", "Waiting: the workers of sync wait", "seeds", "staleness_aware",
        "Servers: ", "catchment train "}) {
    EXPECT_THAT(unwrapped, HasSubstr(part));
  }
  EXPECT_THAT(outcome.err, HasSubstr("dana, seed 1: "));
}

TEST_F(AdviseTest, NamesOnlyWhatTrains) {
  // A rate with which 16 stale workers diverge.
  const CommandOutcome outcome = Advise({job(), "--step=lognormal:50ms:0.3", "--workers=16", "--json",
                                         "--set=optimizer={kind: SGD learning_rate: 30 momentum: 0.9}"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  double best = 0;
  bool has_job = false, has_bounded = false;
  for (const nlohmann::json& row : json["trials"]["rows"]) {
    if (!row["diverged"]) best = std::max(best, row["accuracy"].get<double>());
    has_job = has_job || row["settings"] == "job";
    has_bounded = has_bounded || row["settings"] == "bounded";
    EXPECT_FALSE(row["diverged"].get<bool>() && row["recommended"].get<bool>()) << row;
  }
  EXPECT_TRUE(has_job && has_bounded) << json["trials"];
  ASSERT_FALSE(json["recommended"].empty());
  for (const nlohmann::json& row : json["recommended"]) {
    EXPECT_GE(row["accuracy"].get<double>(), best - 0.02) << row;
    EXPECT_EQ(row["accuracies"].size(), 3u) << row;
    EXPECT_GT(row["learning_rate"].get<double>(), 0) << row;
    EXPECT_TRUE(row["seconds_to_target"].is_number()) << row;
  }
}

TEST_F(AdviseTest, WritesTheSameAsJson) {
  const std::vector<std::string> args = {job(), "--step=constant:50ms", "--json", "--set",
                                         "algorithm.preset=sync"};
  const CommandOutcome outcome = Advise(args);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["preset"], "sync");
  EXPECT_EQ(json["workers"], 4);
  EXPECT_EQ(json["evidence"]["step"], "constant:50ms");
  EXPECT_FALSE(json["trials"]["quadratic"].get<bool>());
  EXPECT_EQ(json["trials"]["samples"], 512) << "the job's budget";
  EXPECT_GT(json["scaling"]["rows"][0]["computing"].get<double>(), 0.9);
  EXPECT_EQ(json["scaling"]["servers"], 1);
  EXPECT_FALSE(RowOf(json, "sync").is_null());
  EXPECT_EQ(Advise(args).out, outcome.out) << "the same again";
}

TEST_F(AdviseTest, TakesSlowWorkers) {
  const CommandOutcome outcome =
      Advise({job(), "--step=constant:50ms", "--workers=8", "--straggler=3:5x", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["evidence"]["slow_workers"].dump(), R"([{"times":5.0,"worker":3}])");
  EXPECT_GT(json["sync_waiting"].get<double>(), 0.4) << "sync waits for it";
  EXPECT_EQ(RowOf(json, "sync")["waiting"], json["sync_waiting"]);
  EXPECT_LT(RowOf(json, "downpour")["waiting"].get<double>(), 0.2);
  EXPECT_EQ(Advise({job(), "--straggler=1%steps:5x"}).code, 2);
}

TEST_F(AdviseTest, TrainsAQuadraticInPlaceOfALargeModel) {
  const CommandOutcome outcome = Advise({job(), "--step=constant:50ms", "--json", "--workers=8",
                                         "--set=model={synthetic: {parameters: 100000000}}",
                                         "--set=data={synthetic: {samples: 100000}}"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_TRUE(json["trials"]["quadratic"].get<bool>());
  EXPECT_THAT(json["trials"]["model"].get<std::string>(), HasSubstr("assumed"));
  EXPECT_FALSE(json["sure"].get<bool>());
  EXPECT_FALSE(json["recommended"].empty());
}

TEST_F(AdviseTest, WithoutAStepSaysWhatIsMissing) {
  const CommandOutcome outcome = Advise({job()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("--step=lognormal:120ms:0.3"));
}

TEST_F(AdviseTest, RefusesWhatItCannotRead) {
  EXPECT_EQ(Advise({}).code, 2);
  EXPECT_EQ(Advise({job(), "--step=fast"}).code, 2);
  EXPECT_THAT(Advise({job(), "--step=fast"}).err, HasSubstr("lognormal:120ms:0.3"));
  EXPECT_EQ(Advise({root_ + "/none.textproto"}).code, 1);
  const CommandOutcome unfinished = Advise({root_});
  EXPECT_EQ(unfinished.code, 1);
  EXPECT_THAT(unfinished.err, HasSubstr("a finished run is needed"));
  EXPECT_EQ(Advise({root_, "--set", "workers=2"}).code, 2);
  const CommandOutcome absent = Advise({"127.0.0.1:1"});
  EXPECT_EQ(absent.code, 1);
  EXPECT_THAT(absent.err, HasSubstr("server with index 0"));
}

}  // namespace
}  // namespace catchment
