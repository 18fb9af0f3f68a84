#include "tests/benchmarks/loopback.h"

#include "gtest/gtest.h"

namespace catchment {
namespace {

TEST(Loopback, ExchangesOverEveryConnection) {
  for (const int connections : {1, 3}) {
    // Each exchanges once at least, also where no time is left when its thread begins.
    const absl::StatusOr<double> speed = LoopbackBytesPerSecond(100000, connections, 0);
    ASSERT_TRUE(speed.ok()) << speed.status();
    EXPECT_GT(*speed, 0);
  }
}

}  // namespace
}  // namespace catchment
