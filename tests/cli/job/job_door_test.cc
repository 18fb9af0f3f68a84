#include "cli/job/job_door.h"

#include <set>

#include "cli/job/read_job.h"
#include "common/job/job_text.h"
#include "common/job/presets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr char kMlp[] = "examples/mnist_mlp.textproto";

Json Ask(const Json& request) { return JobDoor("", "", 1).Answer(request.dump()); }

Json OfMlp(Json more) {
  more["file"] = kMlp;
  return Ask(more);
}

std::string ErrorOf(const Json& answer) {
  EXPECT_EQ(answer["version"], 1);
  EXPECT_EQ(answer["valid"], false) << answer;
  return answer.value("error", "");
}

TEST(JobDoor, AnswersWithTheCompleteJobAndItsFacts) {
  const Json answer = OfMlp({{"set", {"workers=4", "optimizer.learning_rate=0.1"}}});
  EXPECT_EQ(answer["version"], 1);
  EXPECT_EQ(answer["valid"], true) << answer;
  EXPECT_EQ(answer["described"], false);
  const auto job = LoadCompleteJob(kMlp, {"workers=4", "optimizer.learning_rate=0.1"}, 0);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(answer["text"], JobText(*job));
  EXPECT_EQ(answer["settings"]["workers"], 4);
  EXPECT_EQ(answer["settings"]["optimizer"]["learning_rate"], 0.1f);
  EXPECT_EQ(answer["settings"]["optimizer"]["kind"], "SGD");
  EXPECT_TRUE(answer["settings"]["model"]["layers"].is_array());
  EXPECT_EQ(answer["facts"]["name"], job->name());
  EXPECT_EQ(answer["facts"]["learning_rate"], 0.1f);
  EXPECT_EQ(answer["facts"]["train_samples"], 60000);
  EXPECT_EQ(answer["facts"]["total_samples"], 60000 * job->epochs());
  EXPECT_EQ(answer["facts"]["synchronous"], true);
  EXPECT_GT(answer["facts"]["operations_per_sample"], 1e5);
  EXPECT_FALSE(answer.contains("fields") || answer.contains("space"));
}

TEST(JobDoor, TheTextThatItPrintsIsTheSameJob) {
  const Json first = OfMlp({{"set", {"algorithm.preset=downpour", "workers=40"}}});
  EXPECT_EQ(Ask({{"text", first["text"]}})["text"], first["text"]);
  EXPECT_EQ(Ask({{"text", first["text"]}, {"complete", false}, {"facts", true}})["facts"], first["facts"]);
}

TEST(JobDoor, ChangesAreAppliedInTheirOrder) {
  const Json answer = OfMlp({{"clear", {"algorithm", "optimizer.schedule"}},
                             {"set", {"algorithm.preset=easgd", "workers=3"}},
                             {"stragglers", {{1, 1.5}}},
                             {"complete", false}});
  EXPECT_EQ(answer["settings"]["algorithm"], (Json{{"preset", "easgd"}}));
  EXPECT_EQ(answer["settings"]["faults"]["stragglers"][0], (Json{{"worker", 1}, {"slowdown_factor", 1.5f}}));
  EXPECT_FALSE(answer["settings"].contains("epochs") && answer.contains("facts"));
  EXPECT_THAT(ErrorOf(OfMlp({{"clear", {"algorithm.presets"}}})), HasSubstr("no field presets"));
}

TEST(JobDoor, SetsHyperparametersWhereTheAlgorithmHasThem) {
  const Json rates = {{"learning_rate", 0.25}, {"momentum", 0.5}};
  for (const Preset& preset : Presets()) {
    const Json answer =
        OfMlp({{"set", {"workers=4", "algorithm.preset=" + preset.name}}, {"hyperparameters", rates}});
    if (answer["valid"] == false) continue;  // not every algorithm supports every momentum
    EXPECT_EQ(answer["facts"]["learning_rate"], 0.25) << preset.name;
    const Json& momentum = answer["facts"]["momentum"];
    EXPECT_TRUE(momentum.is_null() || momentum == 0.5) << preset.name;
  }
  const Json constant = OfMlp({{"constant_rate", true}});
  EXPECT_EQ(constant["settings"]["optimizer"]["schedule"]["decay"], "CONSTANT");
}

TEST(JobDoor, SaysWhatASearchBeginsWith) {
  const std::vector<std::string> set = {"optimizer.momentum=0.5", "model.layers[99].dropout.rate=1"};
  const Json space = OfMlp({{"set", {"optimizer.momentum=0.5", "algorithm.preset=downpour", "workers=40"}},
                            {"space", set}})["space"];
  EXPECT_EQ(space["set"], (Json{{"learning_rate", nullptr}, {"momentum", 0.5}}));
  EXPECT_EQ(space["given"]["momentum"], 0.5);
  EXPECT_EQ(space["own"]["momentum"], 0.5);
  EXPECT_EQ(space["has_momentum"], true);
  EXPECT_EQ(space["usual_step"], 0.5);
  EXPECT_FLOAT_EQ(space["limit"], 0.01f);
}

TEST(JobDoor, HasTheFieldsByTheirPaths) {
  const Json fields = OfMlp({{"fields", true},
                             {"set", {"algorithm.consistency={asynchronous {}}"}},
                             {"complete", false}})["fields"];
  EXPECT_EQ(fields["algorithm.consistency.asynchronous"], "");
  EXPECT_THAT(std::string(fields["model.layers"]), HasSubstr("[{ "));
}

TEST(JobDoor, ErrorsAreAnswersWithTheirCodes) {
  EXPECT_THAT(ErrorOf(OfMlp({{"set", {"workers=0"}}})), HasSubstr("workers"));
  EXPECT_EQ(OfMlp({{"set", {"workers=0"}}})["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(Ask({{"file", "/nothing"}})["code"], "NOT_FOUND");
  EXPECT_EQ(Ask({{"run", "/nothing"}})["code"], "NOT_FOUND");
  EXPECT_THAT(ErrorOf(Ask(Json::object())), HasSubstr("JOB"));
  EXPECT_THAT(ErrorOf(OfMlp({{"set", 3}})), HasSubstr("the request"));
  EXPECT_THAT(ErrorOf(JobDoor("", "", 1).Answer("[")), HasSubstr("JSON object"));
  EXPECT_THAT(ErrorOf(OfMlp({{"servers", 100000000}})), HasSubstr("servers"));
  EXPECT_THAT(ErrorOf(Ask({{"copy_weights", "/tmp/x"}})), HasSubstr("no program"));
}

TEST(JobDoor, TheJobOfTheCommandLineIsReadOnce) {
  JobDoor door(kMlp, "", 2);
  EXPECT_EQ(door.Answer("{}")["settings"]["name"], "mnist_mlp");
  EXPECT_EQ(door.Answer(R"({"set": ["name=other"]})")["facts"]["name"], "other");
}

TEST(JobDoor, KnowsPresetsAndFlags) {
  const Json about = Ask({{"about", true}});
  EXPECT_EQ(about["presets"].size(), Presets().size());
  EXPECT_EQ(about["presets"][0]["name"], Presets()[0].name);
  EXPECT_GT(about["processors"], 0);
  EXPECT_EQ(Ask({{"preset", "sync"}})["valid"], true);
  EXPECT_THAT(ErrorOf(Ask({{"preset", "async"}})), HasSubstr("did you mean downpour?"));
  EXPECT_EQ(Ask({{"flag", "epochs"}, {"value", "3"}})["advice"],
            "epochs is a field of the job: --set epochs=3");
  EXPECT_EQ(Ask({{"flag", "xyzzy"}})["advice"], "");
}

}  // namespace
}  // namespace catchment
