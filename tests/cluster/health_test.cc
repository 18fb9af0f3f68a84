// gRPC's health service on the servers of a job, asked with the protocol's own client.
#include <csignal>

#include "common/net/rpc.h"
#include "proto/health.grpc.pb.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr char kMaster[] = "catchment.v1.MasterService";
constexpr char kShard[] = "catchment.v1.ShardService";

// "SERVING", "NOT_SERVING", or the name of the call's status.
std::string Ask(const std::string& address, const std::string& service) {
  const auto stub =
      grpc::health::v1::Health::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  const auto context = DeadlineContext(kPatience);
  HealthCheckRequest request;
  request.set_service(service);
  HealthCheckResponse response;
  const absl::Status status = FromGrpc(stub->Check(context.get(), request, &response));
  return status.ok() ? HealthCheckResponse::ServingStatus_Name(response.status())
                     : absl::StatusCodeToString(status.code());
}

// Returns the address of server 1 from its output.
std::string SecondServer(TestCluster& cluster) {
  const std::string said = "listening on ";
  EXPECT_TRUE(cluster.AwaitOutput(cluster.server(1), said));
  const std::string output = cluster.server(1).Output();
  const size_t begin = output.find(said) + said.size();
  return output.substr(begin, output.find('\n', begin) - begin);
}

TEST(HealthTest, ShardsAndMasterServeWhileTheJobTrainsAndTheProcessAlways) {
  TestCluster cluster({SmallJob("downpour", "workers: 1 epochs: 1000000"), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  const std::string first = cluster.master(), second = SecondServer(cluster);
  EXPECT_EQ(Ask(first, ""), "SERVING");
  EXPECT_EQ(Ask(second, ""), "SERVING");
  EXPECT_EQ(Ask(first, kMaster), "NOT_SERVING");
  EXPECT_EQ(Ask(first, "shard-0"), "NOT_SERVING");
  EXPECT_EQ(Ask(second, "shard-1"), "NOT_SERVING");
  EXPECT_EQ(Ask(second, kShard), "NOT_SERVING");
  // Each knows its own names alone.
  EXPECT_EQ(Ask(first, "shard-1"), "NOT_FOUND");
  EXPECT_EQ(Ask(second, kMaster), "NOT_FOUND");

  cluster.StartWorkers(1);
  const auto all_say = [&](const std::string& answer) {
    return Await([&] {
      return Ask(first, kMaster) == answer && Ask(first, "shard-0") == answer &&
             Ask(second, kShard) == answer && Ask(second, "shard-1") == answer;
    });
  };
  EXPECT_TRUE(all_say("SERVING")) << cluster.LastWords();

  // Without any worker the job waits again.
  cluster.worker(0).Signal(SIGTERM);
  EXPECT_TRUE(all_say("NOT_SERVING")) << cluster.LastWords();
  EXPECT_EQ(Ask(first, ""), "SERVING");
  EXPECT_EQ(Ask(second, ""), "SERVING");
  cluster.server(0).Signal(SIGTERM);
  EXPECT_TRUE(cluster.AwaitOrderlyEnd());
}

}  // namespace
}  // namespace catchment
