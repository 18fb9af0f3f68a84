#include "common/net/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace catchment {
namespace {

using testing::HasSubstr;

std::string Tidied(std::string address) {
  const absl::Status status = TidyAddress(&address);
  return status.ok() ? address : std::string(status.message());
}

TEST(AddressTest, AddressesAreTakenWithoutTheSpacesAroundThem) {
  for (const std::string address :
       {"node0:7000", "127.0.0.1:0", "[::1]:7000", "unix:/tmp/a server", "a-b.c_d:65535"}) {
    EXPECT_EQ(Tidied(" " + address + "\t"), address);
  }
  std::string list = "a:1, b:2 ,c:3";
  EXPECT_TRUE(TidyAddresses(&list).ok());
  EXPECT_EQ(list, "a:1,b:2,c:3");
}

TEST(AddressTest, WhatIsNotAnAddressIsRefused) {
  for (const char* const address :
       {"", "node0", "node0:", ":7000", "node0:http", "node0:70000", "node0:-1", "no de:1", "node0:7000/job",
        "user@node0:7000", "[node0]:7000", "[::1]"}) {
    EXPECT_THAT(Tidied(address), HasSubstr(std::string("'") + address + "' is not HOST:PORT")) << address;
  }
  EXPECT_THAT(Tidied("http://node0:7000"), HasSubstr("leave out http://"));
  EXPECT_THAT(Tidied("dns:///node0:7000"), HasSubstr("leave out dns://"));
  EXPECT_THAT(Tidied("::1:7000"), HasSubstr("in brackets"));
  for (std::string list : {"a:1,", ",a:1", "a:1 b:2", "a:1,http://b:2"}) {
    EXPECT_FALSE(TidyAddresses(&list).ok()) << list;
  }
}

TEST(AddressTest, HostHasNoBrackets) {
  EXPECT_EQ(HostOf("[::1]:7000"), "::1");
  EXPECT_EQ(HostOf("node0:7000"), "node0");
  EXPECT_EQ(HostOf("unix:/tmp/server"), "unix");
}

TEST(AddressTest, LocalHostsAreLocalhostAndLoopbackAddresses) {
  for (const char* const host : {"localhost", "127.0.0.1", "127.0.1.1", "::1"})
    EXPECT_TRUE(IsLocalHost(host)) << host;
  for (const char* const host : {"10.0.0.1", "0.0.0.0", "::", "no.such.host.invalid"}) {
    EXPECT_FALSE(IsLocalHost(host)) << host;
  }
  EXPECT_TRUE(AreLoopback({"127.0.1.1", "::1"}));
  EXPECT_FALSE(AreLoopback({"127.0.1.1", "10.0.0.1"}));
  EXPECT_FALSE(AreLoopback({}));
}

// A machine on which /etc/hosts has 127.0.1.1 for its own name.
TEST(AddressTest, NameWithLoopbackAddressesAloneListensOnAllInterfaces) {
  EXPECT_EQ(AddressToListenOn("node0:7000", {"127.0.1.1"}), "[::]:7000");
  for (const char* const address : {"localhost:7000", "127.0.1.1:7000", "[::1]:7000"}) {
    EXPECT_EQ(AddressToListenOn(address, {"127.0.1.1"}), address);
  }
  EXPECT_EQ(AddressToListenOn("node0:7000", {"127.0.1.1", "10.0.0.1"}), "node0:7000");
  EXPECT_EQ(AddressToListenOn("node0:7000", {}), "node0:7000");
}

}  // namespace
}  // namespace catchment
