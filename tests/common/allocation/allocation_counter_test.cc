#include "tests/common/allocation/allocation_counter.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

namespace catchment {
namespace {

Allocations In(const std::function<void()>& run) {
  const Allocations before = CountAllocations();
  run();
  return CountAllocations() - before;
}

TEST(AllocationCounterTest, CountsEveryWayToAskForMemory) {
  if (!AllocationsAreCounted()) GTEST_SKIP() << "a sanitizer has its own malloc";
  // volatile, because the compiler may optimize away memory that is not used.
  void* volatile memory = nullptr;
  struct alignas(64) Wide {
    char bytes[64];
  };
  const std::function<void()> ways[] = {
      [&] { memory = std::malloc(10); },           [&] { memory = std::calloc(2, 5); },
      [&] { memory = std::realloc(nullptr, 10); }, [&] { memory = std::aligned_alloc(64, 64); },
      [&] { memory = ::operator new(10); },        [&] { memory = new Wide; },
      [&] { memory = ::operator new[](10); },
  };
  for (const auto& way : ways) {
    const Allocations counted = In(way);
    EXPECT_EQ(counted.all, 1u) << &way - ways;
    EXPECT_EQ(counted.ours, 1u) << &way - ways;
    std::free(memory);
  }
}

TEST(AllocationCounterTest, CountsTheBytesInUseAndTheMostOfThem) {
  if (!AllocationsAreCounted()) GTEST_SKIP() << "a sanitizer has its own malloc";
  constexpr uint64_t kBytes = 10'000'000, kMore = 100'000;
  const uint64_t before = BytesInUse();
  ResetMostBytes();
  {
    std::vector<char> first(kBytes);
    std::vector<char>(2 * kBytes).swap(first);
    void* const grown = std::realloc(std::malloc(kBytes), 2 * kBytes);
    EXPECT_GE(BytesInUse() - before, 4 * kBytes);
    EXPECT_LT(BytesInUse() - before, 4 * kBytes + kMore);
    std::free(grown);
  }
  EXPECT_LT(BytesInUse() - before, kMore);
  EXPECT_GE(MostBytesInUse() - before, 4 * kBytes);
  EXPECT_LT(MostBytesInUse() - before, 4 * kBytes + kMore);
  ResetMostBytes();
  EXPECT_LT(MostBytesInUse() - before, kMore);
}

TEST(AllocationCounterTest, CountsNothingWhereNothingIsAskedFor) {
  std::vector<int> numbers;
  numbers.reserve(100);
  const Allocations counted = In([&] {
    for (int i = 0; i < 100; ++i) numbers.push_back(i);
  });
  EXPECT_EQ(counted.all, 0u);
}

TEST(AllocationCounterTest, CountsThoseOfLibrariesAndOtherThreadsApart) {
  if (!AllocationsAreCounted()) GTEST_SKIP() << "a sanitizer has its own malloc";
  // A long text grows inside the standard library.
  const Allocations library = In([] {
    std::ostringstream text;
    for (int i = 0; i < 1000; ++i) text << i << " and ";
  });
  EXPECT_GT(library.all, 0u);
  EXPECT_EQ(library.ours, 0u);
  const Allocations thread = In([] { std::thread([] { std::make_unique<std::vector<int>>(1000); }).join(); });
  EXPECT_GE(thread.ours, 2u);
}

}  // namespace
}  // namespace catchment
