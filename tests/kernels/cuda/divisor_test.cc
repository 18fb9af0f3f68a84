// Divisor against the processor's division.
#include "kernels/cuda/divisor.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace catchment::cuda {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

// Numbers beside powers of two, beside the largest one, and small ones.
std::vector<int64_t> EdgeValues() {
  std::set<int64_t> values;
  for (int64_t i = 0; i <= 40; ++i) values.insert({i, kLargest - i});
  for (int bits = 5; bits < 31; ++bits) {
    const int64_t power = int64_t{1} << bits;
    values.insert({power - 1, power, power + 1, 3 * power / 2});
  }
  // Widths and areas of images, and numbers with large prime factors.
  values.insert({49, 147, 196, 576, 3136, 12544, 65521, 65537, 16777213, 1073741789});
  return {values.begin(), values.end()};
}

void ExpectQuotient(int64_t n, int64_t d) {
  if (n < 0 || n > kLargest) return;
  const Divisor divisor(d);
  int rest = -1;
  ASSERT_EQ(divisor.Divide(static_cast<int>(n), &rest), n / d) << n << " / " << d;
  ASSERT_EQ(rest, n % d) << n << " % " << d;
  ASSERT_EQ(static_cast<int>(n) / divisor, n / d) << n << " / " << d;
  ASSERT_EQ(static_cast<int>(n) % divisor, n % d) << n << " % " << d;
}

TEST(DivisorTest, DividesEdgeValues) {
  for (const int64_t d : EdgeValues()) {
    if (d == 0) continue;
    for (const int64_t n : EdgeValues()) ExpectQuotient(n, d);
    // Dividends around a change of the quotient.
    for (const int64_t quotient : {int64_t{1}, int64_t{2}, kLargest / d / 2, kLargest / d}) {
      for (const int64_t n : {quotient * d - 1, quotient * d, quotient * d + 1}) ExpectQuotient(n, d);
    }
  }
}

TEST(DivisorTest, DividesRandomNumbers) {
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto d = static_cast<int64_t>(1 + (random.Below(kLargest) >> random.Below(31)));
    const auto n = static_cast<int64_t>(random.Below(kLargest) + 1);
    ExpectQuotient(n, d);
    ExpectQuotient(n / d * d, d);
    ExpectQuotient(n / d * d - 1, d);
  }
}

}  // namespace
}  // namespace catchment::cuda
