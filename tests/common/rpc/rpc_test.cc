#include "common/rpc.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/synchronization/mutex.h"

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
  const char kMessage[] = "mutual TLS requires all of --tls_ca, --tls_cert and --tls_key";
  EXPECT_EQ(MessageOf({"ca", "", ""}), kMessage);
  EXPECT_EQ(MessageOf({"ca", "cert", ""}), kMessage);
  EXPECT_EQ(MessageOf({"", "cert", "key"}), kMessage);
}

TEST(RpcTest, FileThatIsNoPemIsNamedWithItsFlag) {
  const std::string pem = WriteFile("some.pem", "-----BEGIN CERTIFICATE-----\n");
  const std::string text = WriteFile("some.txt", "hello");
  EXPECT_EQ(MessageOf({"/nowhere/ca", pem, pem}), "--tls_ca=/nowhere/ca is not a readable PEM file");
  EXPECT_EQ(MessageOf({pem, text, pem}), "--tls_cert=" + text + " is not a readable PEM file");
  EXPECT_EQ(MessageOf({pem, pem, "/nowhere"}), "--tls_key=/nowhere is not a readable PEM file");
}

TEST(RpcTest, StatusesKeepTheirCodesAndMessagesBothWays) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(ToGrpc(status).error_code(), code);
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
    EXPECT_EQ(FromGrpc(ToGrpc(status), "server 1").message(), "server 1: why");
    EXPECT_EQ(FromGrpc(ToGrpc(status), "server 1").code(), status.code());
  }
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK, "server 1").ok());
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
