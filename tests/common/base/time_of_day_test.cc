// Waits during which the time of day is set. The functions of the C library that read it and wait for it are
// replaced by those of this file, with a time of day that tests set.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <thread>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/net/rpc.h"
#include "worker/stop_flag.h"

namespace {

std::atomic<int64_t> set_by = 0;             // seconds, since the test's start
std::atomic<int> waits_for_time_of_day = 0;  // that have begun

constexpr int64_t kDay = 24 * 3600;

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += set_by;
  return static_cast<int>(result);
}

// Counts a wait for a time of day, and ends it by setting the time.
int pthread_cond_timedwait(pthread_cond_t*, pthread_mutex_t*, const timespec*) {
  ++waits_for_time_of_day;
  set_by += 10 * kDay;
  return ETIMEDOUT;
}

}  // extern "C"

namespace catchment {
namespace {

// Sets the time of day back by a day in each wait.
class TimeOfDayTest : public testing::Test {
 protected:
#ifdef __SANITIZE_THREAD__
  void SetUp() override { GTEST_SKIP() << "waits are for a time of day (common/base/mutex.h)"; }
#endif
  void TearDown() override { EXPECT_EQ(waits_for_time_of_day, 0); }
};

TEST_F(TimeOfDayTest, IsTheTestsOwn) {
  const auto before = std::chrono::system_clock::now();
  set_by -= kDay;
  EXPECT_LT(std::chrono::system_clock::now(), before);
  const double steady = SteadyClock().Now();
  set_by -= kDay;
  EXPECT_GE(SteadyClock().Now(), steady);
}

TEST_F(TimeOfDayTest, WaitEndsAlthoughItIsSetBack) {
  Mutex mu;
  CondVar changed;
  std::atomic<bool> waits = false;
  std::thread setter([&] {
    while (!waits) std::this_thread::yield();
    // The other thread has released the lock: it waits.
    MutexLock lock(&mu);
    set_by -= kDay;
  });
  {
    MutexLock lock(&mu);
    EXPECT_FALSE(changed.WaitFor(&mu, 0.1, [&] {
      waits = true;
      return false;
    }));
  }
  setter.join();
}

TEST_F(TimeOfDayTest, PauseOfAWorkerEndsAlthoughItIsSetBack) {
  const StopFlag stop;
  std::thread setter([] { set_by -= kDay; });
  EXPECT_FALSE(stop.Pause(0.1));
  setter.join();
}

TEST_F(TimeOfDayTest, DeadlinesOfCallsAreOfTheMonotonicClock) {
  const gpr_timespec in_a_second = TimeIn(1);
  EXPECT_EQ(in_a_second.clock_type, GPR_CLOCK_MONOTONIC);
  set_by += kDay;
  EXPECT_LT(gpr_time_cmp(gpr_now(GPR_CLOCK_MONOTONIC), TimeIn(60)), 0);
  EXPECT_EQ(DeadlineContext(1)->raw_deadline().clock_type, GPR_CLOCK_MONOTONIC);
}

}  // namespace
}  // namespace catchment
