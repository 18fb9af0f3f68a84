// A control loop can be run again from its log, with the same replies and effects.
#include "tests/server/control/replay.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/control/virtual_cluster.h"

namespace catchment {
namespace {

struct Logged {
  std::vector<v1::ControlLogLine> lines;
  std::vector<std::string> events;
};

// Trains a job whose processes are lost at random moments.
Logged Train(uint64_t seed) {
  Logged logged;
  VirtualCluster::Options options;
  options.job = {.synchronous = (seed & 1) != 0, .workers = 3, .batch_size = 4, .epochs = 5};
  options.job.every_updates = 20;
  options.standby = (seed & 2) != 0;
  options.seed = seed;
  options.worker_losses = 10;
  options.server_losses = 8;
  options.master_losses = 8;
  options.losses_end = 30;
  options.log = [&logged](const v1::ControlLogLine& line) { logged.lines.push_back(line); };
  VirtualCluster cluster(options);
  cluster.Run();
  logged.events = cluster.events();
  return logged;
}

std::string Write(const std::vector<v1::ControlLogLine>& lines) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/control.log");
  std::ofstream file(path);
  for (const v1::ControlLogLine& line : lines) file << line.ShortDebugString() << "\n";
  return path;
}

TEST(ReplayTest, RunsWithLossesCanBeMadeAgain) {
  int runs = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Logged logged = Train(seed);
    if (HasFatalFailure()) return;
    EXPECT_EQ(ReplayFile(Write(logged.lines)), "");
    Replay replay;
    for (const v1::ControlLogLine& line : logged.lines) {
      ASSERT_EQ(replay.Next(line), "");
      runs += line.has_run();
    }
    EXPECT_EQ(replay.events(), logged.events);
  }
  EXPECT_GT(runs, 24) << "masters were lost";
}

TEST(ReplayTest, NamesTheFirstLineThatDiffers) {
  const Logged logged = Train(1);
  const auto first_with = [&logged](v1::ControlInput::KindCase kind) {
    size_t i = 0;
    while (logged.lines[i].input().kind_case() != kind) ++i;
    return i;
  };
  // An answer of a server that was lost on the way.
  std::vector<v1::ControlLogLine> lines = logged.lines;
  lines.erase(lines.begin() + static_cast<int>(first_with(v1::ControlInput::kAnswer)));
  EXPECT_NE(ReplayFile(Write(lines)), "");
  // Another reply.
  lines = logged.lines;
  const size_t call = first_with(v1::ControlInput::kCall);
  lines[call].mutable_input()->set_outcome("something else");
  const std::string differs = ReplayFile(Write(lines));
  EXPECT_TRUE(absl::StartsWith(differs, absl::StrCat("line ", call + 1, " of "))) << differs;
  EXPECT_TRUE(absl::StrContains(differs, "something else")) << differs;
}

TEST(ReplayTest, IgnoresAnUnfinishedLine) {
  const std::string path = Write(Train(1).lines);
  std::ofstream(path, std::ios::app) << "input { times: 1";
  EXPECT_EQ(ReplayFile(path), "");
}

TEST(ReplayTest, SecretsAreNotInTheLog) {
  for (const v1::ControlLogLine& line : Train(3).lines) {
    EXPECT_TRUE(line.run().restored().copy().token_key().empty());
    EXPECT_FALSE(absl::StrContains(line.ShortDebugString(), "token: ")) << line.ShortDebugString();
    EXPECT_FALSE(absl::StrContains(line.ShortDebugString(), "token_key: ")) << line.ShortDebugString();
  }
}

TEST(ReplayTest, SaysWhatIsWrongWithAFile) {
  EXPECT_EQ(ReplayFile("/does/not/exist"), "cannot read /does/not/exist");
  EXPECT_TRUE(absl::StrContains(ReplayFile(Write({})), "is empty"));
  v1::ControlLogLine line;
  line.mutable_input()->add_times(1);
  EXPECT_TRUE(absl::StrContains(ReplayFile(Write({line})), "comes before the beginning of a run"));
  line.mutable_run()->set_format(kControlLogFormat + 1);
  EXPECT_TRUE(absl::StrContains(ReplayFile(Write({line})), "use the replay of the version"));
}

}  // namespace
}  // namespace catchment
