// The command: what it takes, and its two forms of output.
#include "cli/advise/advise.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

using testing::HasSubstr;

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
};

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
  static Outcome Advise(const std::vector<std::string>& args) {
    std::ostringstream out, err;
    const int code = RunAdviseCommand(args, {&out, &err});
    return {code, out.str(), err.str()};
  }

  const std::string root_;
};

TEST_F(AdviseTest, AdvisesOnAJob) {
  const Outcome outcome =
      Advise({job(), "--step=lognormal:50ms:0.5", "--network=1Gbit:100us", "--workers=16"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"lognormal:50ms:0.5", "1Gbit:100us", "16 workers on 1 server",
                           "Momentum: The preset's: it was chosen", "Presets to compare", "staleness_aware",
                           "catchment simulate "}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
}

TEST_F(AdviseTest, WritesTheSameAsJson) {
  const Outcome outcome = Advise({job(), "--step=constant:50ms", "--json", "--set", "algorithm.preset=sync"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["preset"], "sync");
  EXPECT_EQ(json["workers"], 4);
  EXPECT_EQ(json["evidence"]["step"], "constant:50ms");
  EXPECT_GT(json["scaling"]["job"]["efficiency"].get<double>(), 0.9);
  EXPECT_EQ(json["scaling"]["servers"], 1);
  EXPECT_TRUE(json["momentum"]["take"].is_null());
  EXPECT_EQ(json["presets"][0]["preset"], "sync");
}

TEST_F(AdviseTest, TakesSlowWorkers) {
  const Outcome outcome =
      Advise({job(), "--step=constant:50ms", "--workers=8", "--straggler=3:5x", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["evidence"]["slow_workers"].dump(), R"([{"times":5.0,"worker":3}])");
  EXPECT_LT(json["presets"][0]["efficiency"].get<double>(), 0.3) << "sync waits for it";
  EXPECT_GT(json["presets"][1]["efficiency"].get<double>(), 0.9);
  EXPECT_EQ(Advise({job(), "--straggler=1%steps:5x"}).code, 2);
}

TEST_F(AdviseTest, WithoutAStepSaysWhatIsMissing) {
  const Outcome outcome = Advise({job()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("--step=lognormal:120ms:0.3"));
  const Outcome json = Advise({job(), "--json"});
  EXPECT_TRUE(nlohmann::json::parse(json.out)["scaling"].is_null());
}

TEST_F(AdviseTest, RefusesWhatItCannotRead) {
  EXPECT_EQ(Advise({}).code, 2);
  EXPECT_EQ(Advise({job(), "--step=fast"}).code, 2);
  EXPECT_THAT(Advise({job(), "--step=fast"}).err, HasSubstr("lognormal:120ms:0.3"));
  EXPECT_EQ(Advise({root_ + "/none.textproto"}).code, 1);
  const Outcome unfinished = Advise({root_});
  EXPECT_EQ(unfinished.code, 1);
  EXPECT_THAT(unfinished.err, HasSubstr("a finished run is needed"));
  EXPECT_EQ(Advise({root_, "--set", "workers=2"}).code, 2);
  const Outcome absent = Advise({"127.0.0.1:1"});
  EXPECT_EQ(absent.code, 1);
  EXPECT_THAT(absent.err, HasSubstr("server with index 0"));
}

}  // namespace
}  // namespace catchment
