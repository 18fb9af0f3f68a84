#include "worker/loop/slowed_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <barrier>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/base/settable_clock.h"

namespace catchment {
namespace {

using ::testing::ElementsAre;

// A time that passes where the test says so, and a log of what happened when.
struct Log {
  double now = 0;
  std::vector<std::string> lines;

  void Add(const std::string& what) { lines.push_back(absl::StrCat(now, " ", what)); }
};

// Takes half a second for each part of the weights and of the gradient.
class SlowNetwork final : public PassObserver {
 public:
  explicit SlowNetwork(Log* log) : log_(*log) {}

  void BeforeForward(Range parameters) override {
    log_.Add(absl::StrCat("wants ", parameters.begin));
    log_.now += 0.5;
  }
  void AfterBackward(Range parameters) override {
    log_.Add(absl::StrCat("sends ", parameters.begin));
    log_.now += 0.5;
  }

 private:
  Log& log_;
};

TEST(SlowedPassTest, EachLayerTakesFactorTimesAsLongAndTheNetworkDoesNot) {
  Log log;
  SlowNetwork network(&log);
  SlowedPass pass(
      10, [&] { return log.now; }, [&](double seconds) { log.now += seconds; }, &network);
  log.now += 1;  // the minibatch is loaded
  pass.BeforeForward({0, 10});
  log.now += 2;
  pass.BeforeForward({10, 20});
  log.now += 3;
  pass.AfterBackward({10, 20});
  log.now += 4;
  pass.AfterBackward({0, 10});
  log.now += 5;  // the loss
  pass.End();
  pass.End();
  log.Add("ends");
  EXPECT_THAT(log.lines,
              ElementsAre("10 wants 0", "30.5 wants 10", "61 sends 10", "101.5 sends 0", "152 ends"));
}

// Lets the calling thread run on one processor, the first that the process may use.
void PinToFirstProcessor() {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
}

TEST(SlowedPassTest, WaitingForAProcessorIsNotComputing) {
  int64_t running = 0;
  std::ifstream("/proc/thread-self/schedstat") >> running;
  if (running == 0) GTEST_SKIP() << "this kernel does not count the waiting";
  const SettableClock clock;
  // Two threads that share a processor: while one runs, the other waits.
  std::barrier start(2);
  std::vector<double> computed(2);
  std::vector<std::thread> threads;
  for (double& seconds : computed) {
    threads.emplace_back([&] {
      PinToFirstProcessor();
      start.arrive_and_wait();
      const SteadyClock real;
      const double end = real.Now() + 0.2;
      while (real.Now() < end) {
      }
      seconds = SecondsWithProcessor(clock);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(computed[0] + computed[1], 2000);
}

}  // namespace
}  // namespace catchment
