#include "worker/attach/child_program.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

constexpr double kPatience = 300;

std::string FreshFile(const std::string& name) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name, ".", getpid());
  unlink(path.c_str());
  return path;
}

// Waits for a condition; false where it does not come true.
template <typename Condition>
bool Await(const Condition& condition) {
  for (int i = 0; i < kPatience * 100; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// Returns the process ids that a program has written to a file, once there are `count`.
std::vector<pid_t> AwaitPids(const std::string& path, size_t count) {
  std::vector<pid_t> pids;
  Await([&] {
    pids.clear();
    std::ifstream file(path);
    for (pid_t pid; file >> pid;) pids.push_back(pid);
    return pids.size() >= count && file.eof();
  });
  EXPECT_EQ(pids.size(), count);
  return pids;
}

// A process that has ended and was not waited for has no command line.
bool Runs(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/cmdline"), std::ios::binary);
  char c;
  return static_cast<bool>(file.get(c));
}

std::unique_ptr<ChildProgram> Start(const std::string& command) {
  auto child = ChildProgram::Start({.command = command});
  EXPECT_TRUE(child.ok()) << child.status();
  return child.ok() ? *std::move(child) : nullptr;
}

// Starts a process that stays, and stays itself; both write their ids down.
std::string TwoProcesses(const std::string& path) {
  return absl::StrCat("sleep 100000 & echo $! >> ", path, "; echo $$ >> ", path, "; sleep 100000; true");
}

TEST(ChildProgramTest, SaysHowItEnded) {
  EXPECT_THAT(Start("exit 7")->WaitFor(kPatience), Optional(std::string("exit code 7")));
  EXPECT_THAT(Start("kill -9 $$")->WaitFor(kPatience),
              Optional(HasSubstr("killed by SIGKILL (9), probably by the kernel for lack of memory")));
  EXPECT_THAT(Start("sh -c 'kill -9 $$'; exit $?")->WaitFor(kPatience),
              Optional(HasSubstr("exit code 137, so a process was killed by SIGKILL (9)")));
  const auto child = Start("sleep 100000");
  EXPECT_FALSE(child->Poll().has_value());
  EXPECT_FALSE(child->WaitFor(0.01).has_value());
}

TEST(ChildProgramTest, HasItsEnvironmentAndItsFilesAndNoOthers) {
  setenv("CATCHMENT_TEST_A", "old", 1);
  setenv("CATCHMENT_TEST_AB", "kept", 1);
  const std::string path = FreshFile("environment");
  int fds[2], others[2];
  ASSERT_EQ(pipe(fds), 0);
  ASSERT_EQ(pipe(others), 0);
  auto child = ChildProgram::Start(
      {.command = absl::StrCat("echo $CATCHMENT_TEST_A $CATCHMENT_TEST_AB > ", path, "; echo through >&",
                               fds[1], "; test ! -e /proc/self/fd/", others[1]),
       .environment = {"CATCHMENT_TEST_A=new"},
       .fds = {fds[1]}});
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_THAT((*child)->WaitFor(kPatience), Optional(std::string("exit code 0")));
  std::string line;
  std::getline(std::ifstream(path), line);
  EXPECT_EQ(line, "new kept");
  char text[7];
  ASSERT_EQ(read(fds[0], text, sizeof(text)), 7);
  EXPECT_EQ(std::string(text, 7), "through");
  for (const int fd : {fds[0], fds[1], others[0], others[1]}) close(fd);
}

// The settings that a daemon makes for its own gRPC are not for that of a program, such as TensorFlow's.
TEST(ChildProgramTest, HasTheVariablesOfGrpcThatThisProcessWasStartedWith) {
  const std::string path = FreshFile("grpc");
  const std::string print = absl::StrCat("env | grep ^GRPC_ > ", path, "; true");
  setenv("GRPC_EXPERIMENTS", "set by this process", 1);
  auto child = ChildProgram::Start({.command = print});
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_THAT((*child)->WaitFor(kPatience), Optional(std::string("exit code 0")));
  std::ifstream file(path);
  const std::string lines(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(lines, HasSubstr("GRPC_VERBOSITY=given\n")) << "BUILD gives this one to the test";
  EXPECT_THAT(lines, Not(HasSubstr("set by this process")));
}

// The daemon obeys the warning of a batch system, and the program ends with it.
TEST(ChildProgramTest, OutlivesTheWarningsOfBatchSystems) {
  auto child = ChildProgram::Start({.command = "kill -USR1 $$; kill -USR2 $$; exit 7"});
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_THAT((*child)->WaitFor(kPatience), Optional(std::string("exit code 7")));
}

TEST(ChildProgramTest, LeavesNothingBehindWhenItIsGivenUp) {
  const std::string path = FreshFile("given-up");
  auto child = Start(TwoProcesses(path));
  const std::vector<pid_t> pids = AwaitPids(path, 2);
  child.reset();
  for (const pid_t pid : pids) EXPECT_TRUE(Await([pid] { return !Runs(pid); })) << pid;
}

TEST(ChildProgramTest, WhatItStartedEndsWithIt) {
  const std::string path = FreshFile("killed");
  const auto child = Start(TwoProcesses(path));
  const std::vector<pid_t> pids = AwaitPids(path, 2);
  kill(child->pid(), SIGKILL);
  EXPECT_THAT(child->WaitFor(kPatience),
              Optional(HasSubstr("killed by SIGKILL (9), probably by the kernel for lack of memory")));
  for (const pid_t pid : pids) EXPECT_TRUE(Await([pid] { return !Runs(pid); })) << pid;
}

// The daemon's part is played by a child of the test.
TEST(ChildProgramTest, NothingOutlivesADaemonThatIsKilled) {
  const std::string path = FreshFile("orphans");
  const pid_t daemon = fork();
  if (daemon == 0) {
    const auto child = ChildProgram::Start({.command = TwoProcesses(path)});
    while (child.ok()) pause();
    _exit(1);
  }
  const std::vector<pid_t> pids = AwaitPids(path, 2);
  kill(daemon, SIGKILL);
  waitpid(daemon, nullptr, 0);
  for (const pid_t pid : pids) EXPECT_TRUE(Await([pid] { return !Runs(pid); })) << pid;
}

}  // namespace
}  // namespace catchment
