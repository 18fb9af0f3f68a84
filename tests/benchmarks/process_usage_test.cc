#include "tests/benchmarks/process_usage.h"

#include <unistd.h>

#include <vector>

#include "gtest/gtest.h"

namespace catchment {
namespace {

TEST(ProcessUsage, CountsTheProcessorTimeOfAProcess) {
  const double before = ProcessorSeconds(getpid());
  const double busy_before = BusySeconds();
  volatile uint64_t sum = 0;
  while (ProcessorSeconds(getpid()) < before + 0.05) {
    for (int i = 0; i < 1000000; ++i) sum = sum + i;
  }
  EXPECT_GT(BusySeconds(), busy_before);
}

TEST(ProcessUsage, CountsTheMemoryOfAProcess) {
  constexpr int64_t kBytes = 64 << 20;
  const int64_t before = ResidentBytes(getpid());
  std::vector<char> memory(kBytes, 1);
  EXPECT_GT(ResidentBytes(getpid()), before + kBytes / 2);
  EXPECT_GT(AvailableBytes(), kBytes);
}

TEST(ProcessUsage, AnEndedProcessUsesNothing) {
  EXPECT_EQ(ProcessorSeconds(0), 0);
  EXPECT_EQ(ResidentBytes(0), 0);
}

TEST(ProcessUsage, KnowsTheMachine) {
  EXPECT_GE(Cores(), 1);
  EXPECT_FALSE(ProcessorModel().empty());
}

}  // namespace
}  // namespace catchment
