#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <memory>
#include <sstream>

#include "cli/live/commands.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/master.grpc.pb.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;

struct Answer {
  int exit_code;
  std::string out;
  std::string err;
};

Answer Health(const std::vector<std::string>& args) {
  std::ostringstream out, err;
  const int exit_code = RunHealth(args, {&out, &err});
  return {exit_code, out.str(), err.str()};
}

// Tests with gRPC's health service.
class HealthTest : public ::testing::Test {
 protected:
  HealthTest() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&master_);  // gRPC starts no server without any
    server_ = builder.BuildAndStart();
    server_->GetHealthCheckService()->SetServingStatus("shard-0", false);
    address_ = "127.0.0.1:" + std::to_string(port);
  }

  v1::MasterService::Service master_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(HealthTest, ExitCodeIsZeroWhereItServes) {
  const Answer answer = Health({address_});
  EXPECT_EQ(answer.exit_code, 0);
  EXPECT_EQ(answer.out, "SERVING\n");
  EXPECT_EQ(answer.err, "");
}

TEST_F(HealthTest, ExitCodeIsOneWhereItDoesNot) {
  const Answer answer = Health({address_, "--service=shard-0"});
  EXPECT_EQ(answer.exit_code, 1);
  EXPECT_EQ(answer.out, "NOT_SERVING\n");
}

TEST_F(HealthTest, NameThatTheServerDoesNotKnowIsNamed) {
  const Answer answer = Health({address_, "--service=shard-7"});
  EXPECT_EQ(answer.exit_code, 1);
  EXPECT_THAT(answer.err, HasSubstr(address_ + " knows no service 'shard-7'"));
}

TEST_F(HealthTest, ServerThatIsNotThereIsNamed) {
  server_->Shutdown();
  const Answer answer = Health({address_, "--timeout_seconds=1"});
  EXPECT_EQ(answer.exit_code, 1);
  EXPECT_EQ(answer.out, "");
  EXPECT_THAT(answer.err, HasSubstr("server at " + address_));
}

TEST_F(HealthTest, TlsFilesThatCannotBeReadAreNamed) {
  const Answer answer = Health({address_, "--tls_ca=/no/ca", "--tls_cert=/no/cert", "--tls_key=/no/key"});
  EXPECT_EQ(answer.exit_code, 2);
  EXPECT_THAT(answer.err, HasSubstr("--tls_ca=/no/ca"));
}

TEST(HealthUsageTest, ExitCodeIsTwoForAWrongCommandLine) {
  EXPECT_EQ(Health({}).exit_code, 2);
  EXPECT_EQ(Health({"a:1", "b:2"}).exit_code, 2);
  EXPECT_EQ(Health({"http://a:1"}).exit_code, 2);
  EXPECT_THAT(Health({"http://a:1"}).err, HasSubstr("leave out http://"));
  EXPECT_EQ(Health({"a:1", "--frobnicate"}).exit_code, 2);
  EXPECT_EQ(Health({"out-c"}).exit_code, 2);
  EXPECT_THAT(
      Health({"out-c"}).err,
      HasSubstr("'out-c' is neither a directory, the --out of a run, nor HOST:PORT, for example node0:7000"));
  EXPECT_EQ(Health({"--help"}).exit_code, 0);
  EXPECT_THAT(Health({"--help"}).out, HasSubstr("shard-INDEX"));
}

}  // namespace
}  // namespace catchment
