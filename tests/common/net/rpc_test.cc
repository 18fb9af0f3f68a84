#include "common/net/rpc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/net/peer_status.h"
#include "common/program/command_line.h"
#include "proto/wire.grpc.pb.h"
#include "tests/common/net/resetting_server.h"

namespace catchment {
namespace {

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  std::ofstream(path) << text;
  return path;
}

std::string MessageOf(const TlsFiles& tls) {
  const absl::Status client = ClientCredentials(tls).status();
  EXPECT_EQ(client.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ServerCredentials(tls).status(), client);
  return std::string(client.message());
}

TEST(RpcTest, CredentialsTakeAllTlsFilesOrNone) {
  EXPECT_TRUE(ClientCredentials({}).ok());
  EXPECT_TRUE(ServerCredentials({}).ok());
  const char kMessage[] = "mutual TLS requires all of --tls_ca, --tls_cert and --tls_key, or --certs=DIR";
  EXPECT_EQ(MessageOf({"ca", "", ""}), kMessage);
  EXPECT_EQ(MessageOf({"ca", "cert", ""}), kMessage);
  EXPECT_EQ(MessageOf({"", "cert", "key"}), kMessage);
}

TEST(RpcTest, FileThatIsNotAPemIsNamedWithItsFlag) {
  const std::string pem = WriteFile("some.pem", "-----BEGIN CERTIFICATE-----\n");
  const std::string text = WriteFile("some.txt", "hello");
  EXPECT_EQ(MessageOf({"/nowhere/ca", pem, pem}), "--tls_ca=/nowhere/ca is not a readable PEM file");
  EXPECT_EQ(MessageOf({pem, text, pem}), "--tls_cert=" + text + " is not a readable PEM file");
  EXPECT_EQ(MessageOf({pem, pem, "/nowhere"}), "--tls_key=/nowhere is not a readable PEM file");
  const std::string pipe = WriteFile("pipe.pem", "");
  ASSERT_EQ(unlink(pipe.c_str()), 0);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(MessageOf({pipe, pem, pem}), "--tls_ca=" + pipe + " is not a readable PEM file");
}

TEST(RpcTest, KeyOfAnotherCertificateIsRefused) {
  const std::string pem = WriteFile("some.pem", "-----BEGIN CERTIFICATE-----\n");
  EXPECT_EQ(MessageOf({pem, pem, pem}), absl::StrCat("--tls_key=", pem, " and --tls_cert=", pem,
                                                     " are not a matching key and certificate"));
}

TEST(RpcTest, LocalAddressesAreThoseOfTheLoopbackInterfaceAndSockets) {
  for (const char* address :
       {"127.0.0.1:0", "127.255.0.9:7", "localhost:7000", "[::1]:7000", "unix:/tmp/s"}) {
    EXPECT_TRUE(IsLocal(address)) << address;
  }
  for (const char* address :
       {"0.0.0.0:0", "192.0.2.1:7", "[2001:db8::1]:7000", "[::]:7000", "no.such.host.invalid:1"}) {
    EXPECT_FALSE(IsLocal(address)) << address;
  }
}

TEST(RpcTest, ClearTextOverANetworkRequiresAFlag) {
  const TlsFiles tls = {"ca", "cert", "key"};
  EXPECT_TRUE(CheckSecure("127.0.0.1:7000", {}, false).ok());
  EXPECT_TRUE(CheckSecure("192.0.2.1:7000", tls, false).ok());
  EXPECT_TRUE(CheckSecure("192.0.2.1:7000", {}, true).ok());
  const absl::Status refused = CheckSecure("192.0.2.1:7000", {}, false);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              testing::StartsWith("192.0.2.1:7000 is not on this machine's loopback"));
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("--insecure"));
  EXPECT_EQ(CheckSecure("127.0.0.1:7000", tls, true).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RpcTest, EnvironmentHasTheDefaultsOfTheFlags) {
  setenv("CATCHMENT_TLS_CA", "c", 1);
  setenv("CATCHMENT_INSECURE", "1", 1);
  TlsFiles tls;
  bool insecure = false;
  FlagSet flags;
  AddSecurityFlags(&tls, &insecure, &flags);
  EXPECT_EQ(tls.ca, "c");
  EXPECT_EQ(tls.key, "");
  EXPECT_TRUE(insecure);
  ClearSecurityEnvironment();
  FlagSet others;
  AddSecurityFlags(&tls, &insecure, &others);
  EXPECT_EQ(tls.ca, "");
  EXPECT_FALSE(insecure);
}

TEST(RpcTest, ADirectoryHasTheFilesOfARole) {
  setenv("CATCHMENT_CERTS", "/env", 1);
  setenv("CATCHMENT_TLS_KEY", "k", 1);
  TlsFiles tls;
  bool insecure = false;
  FlagSet flags;
  AddSecurityFlags(&tls, &insecure, &flags);
  TlsFiles from_environment = tls;
  FillTlsFiles("worker", &from_environment);
  EXPECT_EQ(from_environment.ca, "/env/ca.crt");
  EXPECT_EQ(from_environment.cert, "/env/worker.crt");
  EXPECT_EQ(from_environment.key, "k") << "what is given by itself stays";
  ASSERT_TRUE(flags.Parse({"--tls_cert=before", "--certs=/d", "--tls_ca=after"}).ok());
  FillTlsFiles("operator", &tls);
  EXPECT_EQ(tls.ca, "after");
  EXPECT_EQ(tls.cert, "/d/operator.crt");
  EXPECT_EQ(tls.key, "/d/operator.key") << "a flag precedes the environment";
  ClearSecurityEnvironment();
  EXPECT_EQ(getenv("CATCHMENT_CERTS"), nullptr);
  TlsFiles none;
  FillTlsFiles("server", &none);
  EXPECT_EQ(none.ca, "");
}

TEST(RpcTest, StatusesKeepTheirCodesAndMessagesBothWays) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(ToGrpc(status).error_code(), code);
    EXPECT_EQ(FromGrpc(ToGrpc(status)), OfPeer(status));
    EXPECT_EQ(FromGrpc(ToGrpc(status), "server 1").message(), "server 1: why");
    EXPECT_EQ(FromGrpc(ToGrpc(status), "server 1").code(), status.code());
  }
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK, "server 1").ok());
}

// gRPC gives such calls the codes INTERNAL, UNAVAILABLE, CANCELLED, RESOURCE_EXHAUSTED and PERMISSION_DENIED,
// which from a server that answers mean something else.
TEST(RpcTest, CallWhoseStreamWasResetIsUnavailable) {
  for (uint8_t code : {2, 7, 8, 11, 12}) {
    const ResettingServer server(code);
    const auto stub =
        v1::ShardService::NewStub(ConnectForControl(server.address(), grpc::InsecureChannelCredentials()));
    v1::ShardReport report;
    const grpc::Status status = stub->Control(DeadlineContext(60).get(), v1::ShardCommand(), &report);
    EXPECT_EQ(FromGrpc(status).code(), absl::StatusCode::kUnavailable)
        << "RST_STREAM with code " << static_cast<int>(code) << ": " << status.error_message();
  }
}

TEST(RpcTest, RefusedCertificateNamesAuthorityAndClock) {
  const absl::Status status = FromGrpc(
      grpc::Status(grpc::StatusCode::UNAVAILABLE, "SSL routines::certificate verify failed"), "server 1");
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("certificate verify failed; the peer's certificate"));
  EXPECT_THAT(std::string(status.message()),
              testing::ContainsRegex("clocks .* here it is 20[0-9-]* [0-9:]* UTC"));
}

TEST(RpcTest, ProgramsResolveNamesAsTheCLibraryDoes) {
  unsetenv("GRPC_DNS_RESOLVER");
  TuneProcess();
  EXPECT_STREQ(std::getenv("GRPC_DNS_RESOLVER"), "native");
  unsetenv("GRPC_DNS_RESOLVER");
  EXPECT_TRUE(ClientCredentials({}).ok());
  EXPECT_STREQ(std::getenv("GRPC_DNS_RESOLVER"), "native");
  setenv("GRPC_DNS_RESOLVER", "ares", 1);
  TuneProcess();
  EXPECT_STREQ(std::getenv("GRPC_DNS_RESOLVER"), "ares");
}

// The search for deadlocks, which Debian's Abseil otherwise makes at every lock, would write of these two.
TEST(RpcTest, TunedProcessDoesNotSearchForDeadlocks) {
  TuneProcess();
  absl::Mutex a, b;
  testing::internal::CaptureStderr();
  { const absl::MutexLock first(&a), second(&b); }
  { const absl::MutexLock first(&b), second(&a); }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace catchment
