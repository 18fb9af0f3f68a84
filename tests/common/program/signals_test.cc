#include <glog/logging.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/program/daemon.h"

namespace catchment {
namespace {

TEST(SignalThreadTest, CallsForEverySignalUntilItIsDestroyed) {
  BlockSignals();
  Mutex mu;
  CondVar changed;
  std::vector<int> got;
  auto thread = std::make_unique<SignalThread>([&](int signal) {
    MutexLock lock(&mu);
    got.push_back(signal);
    changed.Notify();
  });
  const std::vector<int> sent = {SIGTERM, SIGINT, SIGHUP, SIGTERM};
  for (size_t i = 0; i < sent.size(); ++i) {
    kill(getpid(), sent[i]);
    MutexLock lock(&mu);
    changed.Wait(&mu, [&] { return got.size() > i; });
  }
  EXPECT_EQ(got, sent);
  thread.reset();
  EXPECT_EQ(got, sent) << "its own end is not a signal to others";
}

TEST(SignalThreadDeathTest, LogsTheSignalThatStopsAProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    FLAGS_logtostderr = true;
    BlockSignals();
    SignalThread thread([](int) { _exit(0); });
    kill(getpid(), SIGTERM);
    pause();
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "received SIGTERM");
}

TEST(SignalThreadDeathTest, LeavesSignalsIgnoredThatWere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    for (const int ignored : {SIGHUP, SIGUSR1, SIGUSR2}) signal(ignored, SIG_IGN);
    BlockSignals();
    SignalThread thread([](int signal) { _exit(signal == SIGTERM ? 0 : 1); });
    for (const int ignored : {SIGHUP, SIGUSR1, SIGUSR2}) kill(getpid(), ignored);
    kill(getpid(), SIGTERM);
    pause();
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

// A server that has received the warning of a batch system must still obey its SIGTERM.
TEST(SignalThreadTest, WarningsOfBatchSystemsHideNoOtherSignal) {
  BlockSignals();
  Mutex mu;
  CondVar changed;
  int last = 0, calls = 0;
  SignalThread thread([&](int signal) {
    MutexLock lock(&mu);
    last = signal;
    ++calls;
    changed.Notify();
  });
  for (const int warning : {SIGUSR1, SIGUSR2}) kill(getpid(), warning);
  for (const int signal : {SIGXCPU, SIGTERM}) {
    kill(getpid(), signal);
    MutexLock lock(&mu);
    changed.Wait(&mu, [&] { return last == signal; });
  }
  MutexLock lock(&mu);
  EXPECT_EQ(calls, 2) << "SIGUSR1 and SIGUSR2 end no daemon";
}

TEST(SignalThreadTest, EndsWithoutEverHavingBeenCalled) {
  BlockSignals();
  SignalThread([](int) { FAIL(); });
}

// gRPC's threads outlive the daemon's end, and use what the handlers of exit() destroy.
TEST(DaemonDeathTest, EndsWithoutTheHandlersOfExit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    std::atexit(std::abort);
    std::string name = "daemon_test";
    char* argv[] = {name.data(), nullptr};
    CommandLine line;
    RunDaemon(1, argv, &line, [](MetricsEndpoint*) { return DaemonEnd{"the test is done", 4}; });
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(4), "the test is done \\(exit code 4\\)");
}

}  // namespace
}  // namespace catchment
