#include "server/shard/buffer_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace catchment {
namespace {

TEST(BufferPoolTest, BuffersAreAlignedAndOfTheSizeThatWasAskedFor) {
  BufferPool pool(100);
  for (int64_t size : {1, 99, 100}) {
    const BufferPtr buffer = pool.Get(size);
    EXPECT_EQ(buffer->size(), size);
    EXPECT_EQ(buffer->bytes(), 4 * size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    std::fill_n(buffer->data(), 100, 1.0f);
  }
}

TEST(BufferPoolTest, ReturnedBufferIsUsedAgain) {
  BufferPool pool(16);
  const float* const first = pool.Get(16)->data();
  EXPECT_EQ(pool.Get(3)->data(), first);
}

TEST(BufferPoolTest, TakesTheSmallestCapacityThatIsEnough) {
  BufferPool pool({16, 1000, 64, 16});
  const float* const small = pool.Get(16)->data();
  const float* const middle = pool.Get(17)->data();
  const float* const large = pool.Get(65)->data();
  EXPECT_NE(small, middle);
  EXPECT_NE(middle, large);
  EXPECT_EQ(pool.Get(1)->data(), small);
  EXPECT_EQ(pool.GetBytes(64 * 4)->data(), middle);
  BufferPtr buffer = pool.Get(1000);
  EXPECT_EQ(buffer->data(), large);
  std::fill_n(buffer->data(), 1000, 1.0f);
}

TEST(BufferPoolDeathTest, ABlockThatIsTooLargeIsABug) {
  BufferPool pool({16, 64});
  EXPECT_DEATH(pool.Get(65), "260 bytes in one block");
}

TEST(BufferPoolTest, BuffersInUseAreDistinct) {
  BufferPool pool(16);
  std::vector<BufferPtr> held;
  std::set<const float*> distinct;
  for (int i = 0; i < 10; ++i) {
    held.push_back(pool.Get(16));
    distinct.insert(held.back()->data());
  }
  EXPECT_EQ(distinct.size(), 10u);
}

// The addresses that the next `count` buffers have.
std::multiset<const float*> NextOf(BufferPool* pool, int count) {
  std::vector<BufferPtr> held;
  std::multiset<const float*> addresses;
  for (int i = 0; i < count; ++i) {
    held.push_back(pool->Get(16));
    addresses.insert(held.back()->data());
  }
  return addresses;
}

TEST(BufferPoolTest, TrimKeepsWhatTheBusiestMomentSinceTheLastOneNeeded) {
  BufferPool pool(16);
  const std::multiset<const float*> five = NextOf(&pool, 5);
  pool.Trim();
  EXPECT_EQ(NextOf(&pool, 5), five) << "all were in use since the pool was made";
  pool.Trim();
  const std::multiset<const float*> two = NextOf(&pool, 2);
  NextOf(&pool, 1);
  // Occupy the freed addresses, so that new buffers have other addresses.
  std::vector<std::unique_ptr<FloatBuffer>> others;
  pool.Trim();
  for (int i = 0; i < 20; ++i) others.push_back(std::make_unique<FloatBuffer>(16, nullptr));
  const std::multiset<const float*> next = NextOf(&pool, 5);
  EXPECT_TRUE(std::includes(next.begin(), next.end(), two.begin(), two.end()));
  int kept = 0;
  for (const float* address : next) kept += five.count(address);
  EXPECT_EQ(kept, 2) << "the other three were let go";
}

TEST(BufferPoolTest, ReferencesShareABufferUntilTheLastHasGone) {
  BufferPool pool(16);
  BufferPtr first = pool.Get(16);
  const float* const address = first->data();
  BufferPtr second = first, moved = std::move(first);
  EXPECT_EQ(first, nullptr);
  moved.reset();
  EXPECT_NE(pool.Get(16)->data(), address) << "there is one reference left";
  FloatBuffer* const plain = std::move(second).Release();
  EXPECT_NE(pool.Get(16)->data(), address);
  BufferPtr::Adopt(plain).reset();
  EXPECT_EQ(pool.Get(16)->data(), address);
}

TEST(BufferPoolTest, BufferOutlivesItsPool) {
  BufferPtr buffer;
  {
    BufferPool pool(16);
    buffer = pool.Get(16);
  }
  std::fill_n(buffer->data(), 16, 2.0f);
  EXPECT_EQ(buffer->data()[15], 2.0f);
}

TEST(BufferPoolTest, ThreadsNeverShareABuffer) {
  BufferPool pool(64);
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
