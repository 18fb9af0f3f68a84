#include "server/edge/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/wire.grpc.pb.h"

namespace catchment {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

absl::StatusOr<Listener> ListenOn(const std::string& address) {
  return Listener::Open(address, grpc::InsecureServerCredentials(), {}, {});
}

TEST(ListenerTest, PortZeroPicksAFreePortAndSaysWhich) {
  const absl::StatusOr<Listener> a = ListenOn("127.0.0.1:0"), b = ListenOn("127.0.0.1:0");
  ASSERT_TRUE(a.ok());
  ASSERT_TRUE(b.ok());
  EXPECT_THAT(a->address(), StartsWith("127.0.0.1:"));
  EXPECT_NE(a->address(), "127.0.0.1:0");
  EXPECT_NE(a->address(), b->address());
}

TEST(ListenerTest, PortInUseIsNamedWithTheReasonAndTheMend) {
  const absl::StatusOr<Listener> first = ListenOn("127.0.0.1:0");
  ASSERT_TRUE(first.ok());
  const absl::StatusOr<Listener> second = ListenOn(first->address());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(second.status().message()),
            "cannot listen on " + first->address() +
                ": Address already in use; choose another port, or 0 for a free one");
}

TEST(ListenerTest, AddressOfAnotherMachineIsNamedWithTheReason) {
  // TEST-NET-1, which belongs to nobody.
  EXPECT_THAT(std::string(ListenOn("192.0.2.1:0").status().message()),
              HasSubstr("cannot listen on 192.0.2.1:0: Cannot assign requested address"));
}

TEST(ListenerTest, WhatIsNoAddressIsNamed) {
  for (const char* address : {"", "7000", "localhost", "localhost:"}) {
    const absl::Status status = ListenOn(address).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), "'" + std::string(address) + "' is not HOST:PORT");
  }
}

}  // namespace
}  // namespace catchment
