#include "server/edge/call_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/common/base/settable_clock.h"

namespace catchment {
namespace {

using testing::HasSubstr;

class CallRateTest : public testing::Test {
 protected:
  // Returns how many of `calls` calls are accepted.
  int Take(int calls, const std::string& peer = "ipv4:10.0.0.1:4000") {
    int accepted = 0;
    for (int i = 0; i < calls; ++i) accepted += rate_.Take(peer).ok() ? 1 : 0;
    return accepted;
  }

  SettableClock clock_;
  CallRate rate_{{.per_second = 2, .burst = 5, .most_addresses = 3}, &clock_};
};

TEST_F(CallRateTest, AllowsABurstAndThenTheRate) {
  EXPECT_EQ(Take(100), 5);
  clock_.Advance(0.4);
  EXPECT_EQ(Take(100), 0);
  clock_.Advance(0.1);
  EXPECT_EQ(Take(100), 1);
  clock_.Advance(1);
  EXPECT_EQ(Take(100), 2);
  clock_.Advance(1e9);
  EXPECT_EQ(Take(100), 5);
}

TEST_F(CallRateTest, RefusesSoThatTheCallerTriesAgain) {
  Take(5);
  const absl::Status status = rate_.Take("ipv4:10.0.0.1:4000");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("more than 5 calls at once and then 2 a second came from ipv4:10.0.0.1"));
}

TEST_F(CallRateTest, ACallMayCountAsMany) {
  const std::string peer = "ipv4:10.0.0.1:4000";
  EXPECT_TRUE(rate_.Take(peer, 3).ok());
  EXPECT_FALSE(rate_.Take(peer, 3).ok());
  EXPECT_TRUE(rate_.Take(peer, 2).ok());
}

TEST_F(CallRateTest, AnAddressHasOneLimitForAllItsConnections) {
  EXPECT_EQ(Take(4, "ipv4:10.0.0.1:4000"), 4);
  EXPECT_EQ(Take(4, "ipv4:10.0.0.1:4001"), 1);
  EXPECT_EQ(Take(100, "ipv4:10.0.0.2:4000"), 5);
}

TEST_F(CallRateTest, FurtherAddressesShareALimitUntilOthersAreForgotten) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Take(3, absl::StrCat("ipv4:10.0.0.", i, ":1")), 3);
  EXPECT_EQ(Take(3, "ipv4:10.0.0.3:1"), 3);
  EXPECT_EQ(Take(3, "ipv4:10.0.0.4:1"), 2);
  clock_.Advance(1.5);
  EXPECT_EQ(Take(100, "ipv4:10.0.0.5:1"), 5) << "the first three are forgotten";
}

TEST(AddressOfPeerTest, IsWithoutThePort) {
  EXPECT_EQ(AddressOfPeer("ipv4:10.0.0.1:4000"), "ipv4:10.0.0.1");
  EXPECT_EQ(AddressOfPeer("unix:/run/catchment.sock"), "unix");
  EXPECT_EQ(AddressOfPeer("unix:"), "unix");
  EXPECT_EQ(AddressOfPeer("fd:7"), "fd:7");
  EXPECT_EQ(AddressOfPeer(""), "");
}

TEST(AddressOfPeerTest, OfIpv6IsTheNetwork) {
  const std::string network = AddressOfPeer("ipv6:%5B2001:db8:1:2::1%5D:4000");
  EXPECT_EQ(network, "ipv6:20010db800010002");
  EXPECT_EQ(AddressOfPeer("ipv6:[2001:db8:1:2:ffff::9]:5000"), network);
  EXPECT_NE(AddressOfPeer("ipv6:[2001:db8:1:3::1]:4000"), network);
  EXPECT_EQ(AddressOfPeer("ipv6:%5Bfe80::1%25eth0%5D:4000"), AddressOfPeer("ipv6:%5Bfe80::2%25eth1%5D:4000"));
  EXPECT_EQ(AddressOfPeer("ipv6:nonsense"), "ipv6:nonsense");
}

}  // namespace
}  // namespace catchment
