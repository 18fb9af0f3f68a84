#include "tests/benchmarks/loopback.h"

#include "gtest/gtest.h"

namespace catchment {
namespace {

TEST(Loopback, ExchangesOverEveryConnection) {
  for (const int connections : {1, 3}) {
    // Once each at least, however little time there is.
    const absl::StatusOr<double> speed = LoopbackBytesPerSecond(100000, connections, 0.01);
    ASSERT_TRUE(speed.ok()) << speed.status();
    EXPECT_GT(*speed, 0);
  }
}

}  // namespace
}  // namespace catchment
