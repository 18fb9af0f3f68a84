#include <set>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

TEST(RandomId, IsNeverTheSame) {
  std::set<uint64_t> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(RandomId());
  EXPECT_EQ(ids.size(), 1000u);
  EXPECT_EQ(ids.count(0), 0u);
}

TEST(FormatId, HasAllDigits) {
  EXPECT_EQ(FormatId(0xab), "00000000000000ab");
  EXPECT_EQ(FormatId(0xfedcba9876543210), "fedcba9876543210");
}

}  // namespace
}  // namespace catchment
