#include "cli/base/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A limit that is only reached in case of a bug.
constexpr double kLong = 600;

class ProcessTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name() +
           "." + name;
  }
  Command Shell(const std::string& script) const { return {"shell", {"/bin/sh", "-c", script}, Path("log")}; }
  Process MustStart(const Command& command) const {
    auto process = Process::Start(command);
    EXPECT_TRUE(process.ok()) << process.status();
    return *std::move(process);
  }
  // Waits until the process has written `text`.
  void AwaitOutput(Process* process, const std::string& text) const {
    while (process->Output().find(text) == std::string::npos) {
      ASSERT_FALSE(process->WaitFor(0.01).has_value()) << "ended without writing " << text;
    }
  }
};

TEST_F(ProcessTest, TellsTheExitCode) {
  Process process = MustStart(Shell("exit 3"));
  const auto end = process.WaitFor(kLong);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(ToString(*end), "exit code 3");
  EXPECT_FALSE(end->in_order());
  EXPECT_EQ(ToString(*process.Poll()), "exit code 3") << "asked again";
}

// Returns whether a process runs. One that has ended and that nobody has waited for does not.
bool Runs(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return (stat >> number >> name >> state) && state != "Z" && state != "X";
}

TEST_F(ProcessTest, NothingOfItsGroupOutlivesIt) {
  for (const std::string end : {"exit 0", "exec sleep 1000"}) {
    pid_t background = 0;
    {
      Command command = Shell("sleep 1000 & echo $! >" + Path("pid") + ".new; mv " + Path("pid") + ".new " +
                              Path("pid") + "; " + end);
      command.ends_group = true;
      Process process = MustStart(command);
      while (!(std::ifstream(Path("pid")) >> background)) usleep(10000);
      // The second is killed by its destructor.
      if (end == "exit 0") {
        ASSERT_TRUE(process.WaitFor(kLong).has_value());
      }
    }
    for (int waited = 0; Runs(background) && waited < 6000; ++waited) usleep(10000);
    EXPECT_FALSE(Runs(background)) << end;
    unlink(Path("pid").c_str());
  }
}

TEST_F(ProcessTest, TellsTheSignalByName) {
  Process process = MustStart(Shell("kill -9 $$"));
  const auto end = process.WaitFor(kLong);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(ToString(*end), "killed by SIGKILL (9)");
}

TEST_F(ProcessTest, ExitCodeZeroIsInOrder) {
  Process process = MustStart(Shell("true"));
  const auto end = process.WaitFor(kLong);
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(end->in_order());
}

TEST_F(ProcessTest, WaitsAreBounded) {
  Process process = MustStart(Shell("exec sleep 1000"));
  EXPECT_FALSE(process.WaitFor(0.02).has_value());
  EXPECT_FALSE(process.Poll().has_value());
}

TEST_F(ProcessTest, OutputOfBothStreamsGoesToTheLog) {
  Process process = MustStart(Shell("echo one; echo two >&2; echo; echo three"));
  ASSERT_TRUE(process.WaitFor(kLong).has_value());
  EXPECT_EQ(process.Output(), "one\ntwo\n\nthree\n");
  EXPECT_THAT(process.LastLines(2), ElementsAre("two", "three"));
}

TEST_F(ProcessTest, OutputOfAnEarlierRunStaysInTheLogAndIsNotTakenForThisOnes) {
  ASSERT_TRUE(MustStart(Shell("echo old")).WaitFor(kLong).has_value());
  Process process = MustStart(Shell("echo new"));
  ASSERT_TRUE(process.WaitFor(kLong).has_value());
  EXPECT_EQ(process.Output(), "new\n");
  std::ifstream log(Path("log"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(log), {}), "old\nnew\n");
}

TEST_F(ProcessTest, ANamedPipeIsNotALog) {
  ASSERT_EQ(mkfifo(Path("log").c_str(), 0600), 0);
  EXPECT_EQ(Process::Start(Shell("true")).status().message(),
            "the log file: " + Path("log") + ": is not a regular file");
}

TEST_F(ProcessTest, ASignalEndsIt) {
  Process process = MustStart(Shell("exec sleep 1000"));
  process.Signal(SIGTERM);
  const auto end = process.WaitFor(kLong);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(ToString(*end), "killed by SIGTERM (15)");
}

TEST_F(ProcessTest, SignalsAreNotBlockedInIt) {
  SignalWaiter blocked;  // SIGTERM, in this thread
  Process process = MustStart(Shell("exec sleep 1000"));
  process.Signal(SIGTERM);
  EXPECT_TRUE(process.WaitFor(kLong).has_value());
}

TEST_F(ProcessTest, HasAProcessGroupOfItsOwn) {
  Process process = MustStart(Shell("exec sleep 1000"));
  EXPECT_EQ(getpgid(process.pid()), process.pid());
}

TEST_F(ProcessTest, HasNoInput) {
  Process process = MustStart(Shell("cat; echo end"));
  ASSERT_TRUE(process.WaitFor(kLong).has_value());
  EXPECT_EQ(process.Output(), "end\n");
}

TEST_F(ProcessTest, ItsNicenessIsRaised) {
  Command command = Shell("nice");
  command.nice = 5;
  Process plain = MustStart(Shell("nice"));
  ASSERT_TRUE(plain.WaitFor(kLong).has_value());
  const int before = std::stoi(plain.Output());
  Process process = MustStart(command);
  ASSERT_TRUE(process.WaitFor(kLong).has_value());
  EXPECT_EQ(std::stoi(process.Output()), std::min(before + 5, 19));
}

TEST_F(ProcessTest, DefaultsDoNotReplaceVariablesOfTheEnvironment) {
  setenv("CATCHMENT_TEST_SET", "user", 1);
  unsetenv("CATCHMENT_TEST_UNSET");
  Command command = Shell("echo $CATCHMENT_TEST_SET $CATCHMENT_TEST_UNSET");
  command.defaults = {"CATCHMENT_TEST_SET=ours", "CATCHMENT_TEST_UNSET=ours"};
  Process process = MustStart(command);
  ASSERT_TRUE(process.WaitFor(kLong).has_value());
  EXPECT_EQ(process.Output(), "user ours\n");
}

TEST_F(ProcessTest, DroppingItKillsIt) {
  pid_t pid = 0;
  {
    Process process = MustStart(Shell("exec sleep 1000"));
    pid = process.pid();
  }
  EXPECT_EQ(kill(pid, 0), -1) << "process " << pid << " lives";
}

TEST_F(ProcessTest, ItDiesWithTheProcessThatStartedIt) {
  // The middle process starts a child and is killed; the pipe's far end closes when the child has died too.
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t middle = fork();
  if (middle == 0) {
    close(fds[0]);
    auto child = Process::Start(Shell("exec sleep 1000"));
    raise(child.ok() ? SIGKILL : SIGABRT);
  }
  close(fds[1]);
  int status = 0;
  ASSERT_EQ(waitpid(middle, &status, 0), middle);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
      << "the middle process did not start a child";
  char byte;
  EXPECT_EQ(read(fds[0], &byte, 1), 0) << "end of file is expected when no process holds the pipe";
  close(fds[0]);
}

TEST_F(ProcessTest, AMissingProgramIsNamed) {
  const auto process = Process::Start({"worker-1", {"/no/such/program"}, Path("log")});
  ASSERT_FALSE(process.ok());
  EXPECT_EQ(process.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(process.status().message()), HasSubstr("cannot start worker-1: /no/such/program"));
}

TEST_F(ProcessTest, ALogThatCannotBeWrittenIsNamed) {
  const auto process = Process::Start({"worker-1", {"/bin/true"}, "/no/such/folder/log"});
  ASSERT_FALSE(process.ok());
  EXPECT_THAT(std::string(process.status().message()), HasSubstr("/no/such/folder/log"));
}

TEST(LastLinesTest, SkipsEmptyLinesAndReturnsFewerIfThereAreFewer) {
  EXPECT_THAT(LastLines("a\n\n b\n   \nc", 2), ElementsAre(" b", "c"));
  EXPECT_THAT(LastLines("", 2), ElementsAre());
}

TEST(SignalWaiterTest, ReturnsTheSignalThatCame) {
  SignalWaiter signals;
  kill(getpid(), SIGTERM);
  EXPECT_EQ(signals.Wait(kLong), SIGTERM);
  EXPECT_EQ(signals.Wait(0), 0);
  EXPECT_EQ(signals.Wait(-1), 0);
}

TEST(SignalWaiterTest, ReturnsNoneThatTheProcessIgnores) {
  const auto before = signal(SIGHUP, SIG_IGN);  // as under nohup
  SignalWaiter signals;
  kill(getpid(), SIGHUP);
  EXPECT_EQ(signals.Wait(0), 0);
  signal(SIGHUP, before);
}

TEST(SignalWaiterTest, AChildsEndWakesIt) {
  SignalWaiter signals;
  auto process = Process::Start({"shell", {"/bin/true"}, ::testing::TempDir() + "/wakes.log"});
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_EQ(signals.Wait(kLong), SIGCHLD);
}

}  // namespace
}  // namespace catchment
