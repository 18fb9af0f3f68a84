#include "server/buffer_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

namespace catchment {
namespace {

TEST(BufferPoolTest, BuffersAreAlignedAndOfTheSizeThatWasAskedFor) {
  BufferPool pool(100, 4);
  for (int64_t size : {1, 99, 100}) {
    const BufferPtr buffer = pool.Get(size);
    EXPECT_EQ(buffer->size(), size);
    EXPECT_EQ(buffer->bytes(), 4 * size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    std::fill_n(buffer->data(), 100, 1.0f);
  }
}

TEST(BufferPoolTest, ReturnedBufferIsUsedAgain) {
  BufferPool pool(16, 4);
  const float* const first = pool.Get(16)->data();
  EXPECT_EQ(pool.Get(3)->data(), first);
}

TEST(BufferPoolTest, BuffersInUseAreDistinct) {
  BufferPool pool(16, 2);
  std::vector<BufferPtr> held;
  std::set<const float*> distinct;
  for (int i = 0; i < 10; ++i) {
    held.push_back(pool.Get(16));
    distinct.insert(held.back()->data());
  }
  EXPECT_EQ(distinct.size(), 10u);
}

TEST(BufferPoolTest, NoMoreThanItMayKeepAreKept) {
  BufferPool pool(16, 2);
  std::vector<BufferPtr> held;
  for (int i = 0; i < 5; ++i) held.push_back(pool.Get(16));
  const std::set<const float*> returned_first = {held[0]->data(), held[1]->data()};
  for (BufferPtr& buffer : held) buffer.reset();
  const BufferPtr a = pool.Get(16), b = pool.Get(16);
  EXPECT_EQ((std::set<const float*>{a->data(), b->data()}), returned_first) << "the other three were let go";
}

TEST(BufferPoolTest, BufferOutlivesItsPool) {
  BufferPtr buffer;
  {
    BufferPool pool(16, 2);
    buffer = pool.Get(16);
  }
  std::fill_n(buffer->data(), 16, 2.0f);
  EXPECT_EQ(buffer->data()[15], 2.0f);
}

TEST(BufferPoolTest, ThreadsNeverShareABuffer) {
  BufferPool pool(64, 3);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, &wrong, t] {
      for (int i = 0; i < 2000; ++i) {
        const BufferPtr buffer = pool.Get(64);
        std::fill_n(buffer->data(), 64, static_cast<float>(t));
        for (int k = 0; k < 64; ++k) wrong[t] += buffer->data()[k] != static_cast<float>(t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace catchment
