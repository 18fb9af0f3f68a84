#include "server/edge/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/rpc.h"
#include "proto/health.grpc.pb.h"

namespace catchment {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

absl::StatusOr<Listener> ListenOn(const std::string& address) {
  return Listener::Open(address, grpc::InsecureServerCredentials(), {}, {});
}

namespace health = grpc::health::v1;

absl::StatusOr<health::HealthCheckResponse::ServingStatus> AskHealth(const Listener& listener,
                                                                     const std::string& name) {
  const auto stub = health::Health::NewStub(Connect(listener.address(), grpc::InsecureChannelCredentials()));
  const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(30);
  health::HealthCheckRequest request;
  request.set_service(name);
  health::HealthCheckResponse response;
  const grpc::Status status = stub->Check(context.get(), request, &response);
  if (!status.ok()) return FromGrpc(status);
  return response.status();
}

// Names of the process's threads.
std::vector<std::string> ThreadNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(entry.path() / "comm");
    std::string name;
    if (std::getline(file, name)) names.push_back(name);
  }
  return names;
}

TEST(ListenerTest, HealthIsServingFromTheBeginningForTheProcess) {
  const absl::StatusOr<Listener> listener = ListenOn("127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  const auto status = AskHealth(*listener, "");
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(*status, health::HealthCheckResponse::SERVING);
}

TEST(ListenerTest, HealthOfANameIsWhatItWasLastSetTo) {
  absl::StatusOr<Listener> listener = ListenOn("127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(AskHealth(*listener, "shard-0").status().code(), absl::StatusCode::kNotFound);
  listener->SetServing("shard-0", false);
  EXPECT_EQ(AskHealth(*listener, "shard-0").value(), health::HealthCheckResponse::NOT_SERVING);
  listener->SetServing("shard-0", true);
  EXPECT_EQ(AskHealth(*listener, "shard-0").value(), health::HealthCheckResponse::SERVING);
  EXPECT_EQ(AskHealth(*listener, "shard-1").status().code(), absl::StatusCode::kNotFound);
}

// Services of gRPC's callback API would start threads that wait beside them ("nexting_thread"), which take
// events from them and pass them on.
TEST(ListenerTest, OnlyItsOwnThreadsWaitForConnections) {
  const absl::StatusOr<Listener> listener = ListenOn("127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  EXPECT_TRUE(AskHealth(*listener, "").ok());
  EXPECT_THAT(ThreadNames(), Contains("listener"));
  EXPECT_THAT(ThreadNames(), Not(Contains("nexting_thread")));
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
  // TEST-NET-1, which is reserved for documentation.
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
