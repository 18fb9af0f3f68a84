#include "cli/simulate/simulate_door.h"

#include <filesystem>
#include <sstream>

#include "cli/base/run_directory.h"
#include "cli/job/read_job.h"
#include "common/job/job_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

class SimulateDoorTest : public ::testing::Test {
 protected:
  SimulateDoorTest() : out_(::testing::TempDir() + "/simulate_door") {
    std::filesystem::remove_all(out_);
    std::filesystem::create_directories(out_);
    const auto job = LoadCompleteJob("examples/drawn_digits.textproto", {"samples=2000"}, 2);
    EXPECT_TRUE(job.ok()) << job.status();
    request_ = {{"job", JobText(*job)},
                {"out", out_},
                {"step", {{"kind", "constant"}, {"mean", 0.01}}},
                {"quadratic", {{"condition", 100}, {"noise", 0.1}}}};
  }

  nlohmann::json Summary() const {
    const auto summary = ReadSummary(out_ + "/summary.json");
    EXPECT_TRUE(summary.ok()) << summary.status();
    return summary.value_or(nlohmann::json());
  }

  const std::string out_;
  Json request_;
};

TEST_F(SimulateDoorTest, WritesTheOutputsOfARun) {
  EXPECT_EQ(AnswerSimulation(request_.dump()), (Json{{"version", 1}}));
  EXPECT_EQ(Summary()["phase"], "DONE");
  EXPECT_TRUE(std::filesystem::exists(out_ + "/metrics.jsonl"));
}

TEST_F(SimulateDoorTest, ChangesTheJobAndEndsAfterSeconds) {
  request_["set"] = {"samples=1000000000"};
  request_["stragglers"] = {{1, 10.0}};
  request_["start"] = {{"kind", "exponential"}, {"mean", 0.001}};
  request_["network"] = {{"bytes_per_second", 1.25e9}, {"latency", 50e-6}};
  request_["seconds"] = 2;
  EXPECT_EQ(AnswerSimulation(request_.dump()), (Json{{"version", 1}}));
  const nlohmann::json summary = Summary();
  EXPECT_EQ(summary["phase"], "STOPPED");
  EXPECT_THAT(std::string(summary["reason"]), HasSubstr("2 s"));
}

TEST_F(SimulateDoorTest, SaysHowManyRunsFit) {
  request_["at_once"] = true;
  EXPECT_GE(AnswerSimulation(request_.dump())["at_once"], 1);
  EXPECT_FALSE(std::filesystem::exists(out_ + "/summary.json")) << "nothing runs";
  EXPECT_GE(AnswerSimulation(R"({"about": true})")["processors"], 1);
}

TEST_F(SimulateDoorTest, ErrorsAreAnswersAndTheNextLineIsAnswered) {
  Json without_step = request_, wrong_kind = request_;
  without_step.erase("step");
  wrong_kind["step"]["kind"] = "normal";
  std::istringstream in("[\n" + without_step.dump() + "\n" + wrong_kind.dump() + "\n{}\n" + request_.dump() +
                        "\n");
  std::ostringstream out;
  EXPECT_EQ(ServeSimulations(&in, &out), 0);
  std::istringstream lines(out.str());
  std::vector<Json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(Json::parse(line));
  ASSERT_EQ(answers.size(), 5u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(answers[i]["code"], "INVALID_ARGUMENT") << answers[i];
  EXPECT_EQ(answers[4], (Json{{"version", 1}}));
}

}  // namespace
}  // namespace catchment
