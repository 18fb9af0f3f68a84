#include "worker/data/sample_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/base/settable_clock.h"

namespace catchment {
namespace {

TEST(SampleThreadsTest, RunEachSampleOnce) {
  for (const int size : {1, 2, 5}) {
    SampleThreads threads(size);
    EXPECT_EQ(threads.size(), size);
    for (const int64_t samples : {0, 1, 2, 7, 100, 1000}) {
      std::vector<std::atomic<int>> runs(samples);
      const absl::Status status = threads.Run(samples, [&](int thread, int64_t sample) {
        EXPECT_LT(thread, size);
        ++runs[sample];
        return absl::OkStatus();
      });
      EXPECT_TRUE(status.ok()) << status;
      for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

// Every thread stays in its first task until all of them have one.
TEST(SampleThreadsTest, RunSamplesAtTheSameTime) {
  constexpr int kThreads = 4;
  SampleThreads threads(kThreads);
  for (int round = 0; round < 20; ++round) {
    Mutex mu;
    CondVar changed;
    std::set<int> seen;
    const absl::Status status = threads.Run(kThreads, [&](int thread, int64_t) {
      MutexLock lock(&mu);
      seen.insert(thread);
      changed.Notify();
      changed.Wait(&mu, [&] { return seen.size() == kThreads; });
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(seen.size(), size_t{kThreads});
  }
}

TEST(SampleThreadsTest, ReturnTheErrorOfTheLowestSample) {
  SampleThreads threads(3);
  for (int round = 0; round < 100; ++round) {
    const absl::Status status = threads.Run(200, [&](int, int64_t sample) {
      return sample % 50 == 33 ? absl::DataLossError(absl::StrCat(sample)) : absl::OkStatus();
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(status.message(), "33");
  }
  EXPECT_TRUE(threads.Run(10, [](int, int64_t) { return absl::OkStatus(); }).ok()) << "the next round";
}

TEST(SampleThreadsTest, MeasureTheTimeOfTasks) {
  const SettableClock clock(/*step=*/1);
  SampleThreads threads(1, &clock);
  EXPECT_EQ(threads.busy_seconds(), 0);
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(threads.Run(10, [](int, int64_t) { return absl::OkStatus(); }).ok());
    EXPECT_EQ(threads.busy_seconds(), round);
  }
}

}  // namespace
}  // namespace catchment
