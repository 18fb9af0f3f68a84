// Tests `catchment status` with a master that follows a script.
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "cli/live/commands.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/health.grpc.pb.h"
#include "tests/cli/live/healthy_status.h"
#include "tests/common/net/scripted_master.h"

namespace catchment {
namespace {

using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Answer {
  int exit_code;
  std::string out;
  std::string err;
};

Answer Status(const std::vector<std::string>& args, ScreenSize size = {}) {
  std::ostringstream out, err;
  const int exit_code = RunStatus(args, {&out, &err, [size] { return size; }});
  return {exit_code, out.str(), err.str()};
}

// Returns how soon each request promises the next one.
std::vector<double> Asked(const ScriptedMaster& master) {
  std::vector<double> seconds;
  for (const v1::GetStatusRequest& request : master.get_status.requests())
    seconds.push_back(request.again_in_seconds());
  return seconds;
}

v1::JobStatus In(v1::JobStatus::Phase phase, const std::string& reason = "") {
  v1::JobStatus status = HealthyStatus();
  status.set_phase(phase);
  status.set_reason(reason);
  return status;
}

TEST(StatusTest, ExitCodeTellsWhetherTheJobHasFailed) {
  for (const auto& [phase, exit_code] : {std::pair(v1::JobStatus::WAITING, 0),
                                         {v1::JobStatus::TRAINING, 0},
                                         {v1::JobStatus::DONE, 0},
                                         {v1::JobStatus::STOPPED, 0},
                                         {v1::JobStatus::FAILED, 1}}) {
    ScriptedMaster master;
    master.get_status.Queue({In(phase, "a reason")});
    for (const auto& args : {std::vector<std::string>{master.address()}, {master.address(), "--watch=0.1"}}) {
      const bool ends = phase != v1::JobStatus::WAITING && phase != v1::JobStatus::TRAINING;
      if (args.size() > 1 && !ends) continue;
      const Answer answer = Status(args);
      EXPECT_EQ(answer.exit_code, exit_code) << phase;
      EXPECT_THAT(answer.out, HasSubstr(": a reason\n"));
      EXPECT_EQ(answer.err, "");
    }
  }
}

TEST(StatusTest, ASingleReadingPromisesNoOther) {
  ScriptedMaster master;
  master.get_status.Queue({HealthyStatus()});
  EXPECT_EQ(Status({master.address()}).exit_code, 0);
  EXPECT_THAT(Asked(master), testing::ElementsAre(0));
}

TEST(StatusTest, WatchShowsABlockEachTimeAndEndsWithTheJob) {
  v1::JobStatus later = HealthyStatus();
  later.set_samples(153600 + 500);
  later.set_wall_seconds(81);
  ScriptedMaster master;
  master.get_status.Queue({HealthyStatus(), later, In(v1::JobStatus::FINISHING), In(v1::JobStatus::DONE)});
  const Answer answer = Status({master.address(), "--watch=0.05"});
  EXPECT_EQ(answer.exit_code, 0);
  const std::vector<std::string> blocks = absl::StrSplit(answer.out, "\ndigits (downpour), ");
  ASSERT_EQ(blocks.size(), 4u) << answer.out;
  EXPECT_THAT(blocks[0], HasSubstr("1,920 samples/s"));
  EXPECT_THAT(blocks[1], HasSubstr("500 samples/s")) << "between the two";
  EXPECT_THAT(blocks[3], StartsWith("done\n"));
  EXPECT_THAT(answer.out, Not(HasSubstr("\x1b")));
  // The job waits for the next request.
  EXPECT_THAT(Asked(master), Each(Gt(0.05)));
}

TEST(StatusTest, OnATerminalBlocksTakeEachOthersPlaceAndTheLastOneStays) {
  ScriptedMaster master;
  master.get_status.Queue({HealthyStatus(), HealthyStatus(), In(v1::JobStatus::DONE)});
  const std::string out = Status({master.address(), "--watch=0.05"}, {80, 12}).out;
  EXPECT_THAT(out, StartsWith("\x1b[?1049h\x1b[?25l\x1b[H"));
  const std::vector<std::string> screens_and_last = absl::StrSplit(out, "\x1b[?25h\x1b[?1049l");
  ASSERT_EQ(screens_and_last.size(), 2u);
  EXPECT_THAT(screens_and_last[1], StartsWith("digits (downpour), done\n"));
  const std::vector<std::string> screens = absl::StrSplit(screens_and_last[0], "\x1b[H");
  ASSERT_EQ(screens.size(), 3u) << "what comes before the first, and two";
  const std::vector<std::string> rows = absl::StrSplit(screens[1], "\r\n");
  EXPECT_EQ(rows.size(), 12u);
  EXPECT_THAT(rows.back(), HasSubstr("more lines"));
}

TEST(StatusTest, JsonIsOneObjectOrOneALine) {
  ScriptedMaster master;
  master.get_status.Queue({HealthyStatus(), HealthyStatus(), In(v1::JobStatus::DONE)});
  const auto once = nlohmann::json::parse(Status({master.address(), "--json"}).out, nullptr, false);
  EXPECT_EQ(once.value("phase", ""), "TRAINING");
  const std::vector<std::string> lines = absl::StrSplit(
      Status({master.address(), "--json", "--watch=0.05"}, {80, 24}).out, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(nlohmann::json::parse(lines[0], nullptr, false).value("phase", ""), "TRAINING");
  EXPECT_EQ(nlohmann::json::parse(lines[1], nullptr, false).value("phase", ""), "DONE");
}

TEST(StatusTest, ASignalEndsWatchingAndGivesTheTerminalBack) {
  ScriptedMaster master;
  master.get_status.Queue({HealthyStatus()});
  const pthread_t watcher = pthread_self();
  std::thread user([&] {
    master.get_status.Await(3);
    pthread_kill(watcher, SIGINT);
  });
  const Answer answer = Status({master.address(), "--watch=0.05"}, {100, 50});
  user.join();
  EXPECT_EQ(answer.exit_code, 128 + SIGINT);
  EXPECT_THAT(answer.out, testing::EndsWith("\x1b[?25h\x1b[?1049l"));
}

// ------------------------------------------------------------------------------------------------- errors

TEST(StatusErrorTest, UnreachableMasterIsNamedWithPossibleReasons) {
  ScriptedMaster master;
  master.Shutdown();
  for (const auto& args : {std::vector<std::string>{master.address()}, {master.address(), "--watch"}}) {
    const Answer answer = Status(args);
    EXPECT_EQ(answer.exit_code, 3);
    EXPECT_EQ(answer.out, "");
    EXPECT_THAT(answer.err, HasSubstr("master at " + master.address()));
    EXPECT_THAT(answer.err, HasSubstr("server with index 0"));
  }
}

TEST(StatusErrorTest, ServerThatIsNotTheMasterIsDistinguished) {
  grpc::health::v1::Health::Service other;
  const LoopbackServer server(&other);
  const Answer answer = Status({server.address()});
  EXPECT_EQ(answer.exit_code, 3);
  EXPECT_EQ(answer.err, "catchment status: " + server.address() +
                            " answers, but is not the master: give the address of the server with index 0\n");
}

TEST(StatusErrorTest, ListenerThatDoesNotAnswerIsNamedWithinSeconds) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  socklen_t size = sizeof(address);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const std::string name = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  const Answer answer = Status({name});
  EXPECT_EQ(answer.exit_code, 3);
  EXPECT_THAT(answer.err, HasSubstr("master at " + name));
  close(listener);
}

TEST(StatusErrorTest, WrongCommandLinesAreExplained) {
  EXPECT_EQ(Status({}).exit_code, 2);
  EXPECT_THAT(Status({}).err, HasSubstr("for example: catchment status node0:7000"));
  EXPECT_EQ(Status({"a:1", "b:2"}).exit_code, 2);
  EXPECT_EQ(Status({"node0"}).exit_code, 2);
  EXPECT_THAT(Status({"node0"}).err,
              HasSubstr("'node0' is neither a directory, the --out of a run, nor HOST:PORT"));
  EXPECT_EQ(Status({"http://node0:7000"}).exit_code, 2);
  EXPECT_EQ(Status({"a:1", "--wach"}).exit_code, 2);
  EXPECT_THAT(Status({"a:1", "--wach"}).err, HasSubstr("is it --watch?"));
  EXPECT_EQ(Status({"a:1", "--watch=-1"}).exit_code, 2);
  EXPECT_EQ(Status({"a:1", "--tls_ca=/no/ca"}).exit_code, 2);
  EXPECT_THAT(Status({"a:1", "--tls_ca=/no/ca"}).err, HasSubstr("--tls_key"));
  EXPECT_EQ(Status({"--help"}).exit_code, 0);
  EXPECT_THAT(Status({"--help"}).out, HasSubstr("--watch[=SECONDS]"));
}

}  // namespace
}  // namespace catchment
