#include "common/base/task_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <vector>

namespace catchment {
namespace {

TEST(TaskPoolTest, OneThreadKeepsTheOrderAndRunsWhatTasksAdd) {
  TaskPool pool;
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    pool.Add([&pool, &order, i] {
      order.push_back(i);
      pool.Add([&order, i] {
        order.push_back(10 + i);
        return absl::OkStatus();
      });
      return absl::OkStatus();
    });
  }
  EXPECT_TRUE(pool.Run(1).ok());
  EXPECT_EQ(order, std::vector<int>({0, 1, 2, 10, 11, 12}));
}

TEST(TaskPoolTest, ThreadsRunTasksAtOnceAndWaitForWhatARunningTaskAdds) {
  constexpr int kThreads = 4;
  TaskPool pool;
  std::latch all(kThreads), added(kThreads);
  std::atomic<int> done = 0;
  const TaskPool::Task last = [&] {
    added.arrive_and_wait();
    ++done;
    return absl::OkStatus();
  };
  // Only as many threads as tasks let any of them end. The first one adds the others of the second round when
  // the other threads have nothing to do.
  pool.Add([&] {
    all.arrive_and_wait();
    for (int i = 0; i < kThreads; ++i) pool.Add(last);
    return absl::OkStatus();
  });
  for (int i = 1; i < kThreads; ++i) {
    pool.Add([&] {
      all.arrive_and_wait();
      return absl::OkStatus();
    });
  }
  EXPECT_TRUE(pool.Run(kThreads).ok());
  EXPECT_EQ(done, kThreads);
}

TEST(TaskPoolTest, AnErrorBeginsNoMore) {
  TaskPool pool;
  std::atomic<int> begun = 0;
  for (int i = 0; i < 100; ++i) {
    pool.Add([&] {
      ++begun;
      return absl::NotFoundError("nothing is there");
    });
  }
  EXPECT_EQ(pool.Run(2).message(), "nothing is there");
  EXPECT_GE(begun, 1);
  EXPECT_LE(begun, 2) << "one for each thread";
  EXPECT_TRUE(pool.Run(1).ok()) << "nothing is left";
}

TEST(TaskPoolTest, WithoutTasksItReturns) { EXPECT_TRUE(TaskPool().Run(3).ok()); }

}  // namespace
}  // namespace catchment
