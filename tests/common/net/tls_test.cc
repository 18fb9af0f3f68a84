// Mutual TLS between workers and servers, with certificates made here by openssl.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/net/rpc.h"
#include "common/net/snapshot_reader.h"
#include "tests/common/base/settable_clock.h"
#include "tests/server/edge/test_servers.h"
#include "tests/server/shard/shard_harness.h"
#include "worker/client/parameter_client.h"

namespace catchment {
namespace {

using testing::MatchesRegex;

constexpr int64_t kValues = 100;

void Run(const std::string& command) {
  ASSERT_EQ(std::system((command + " 2>>" + std::getenv("TEST_TMPDIR") + "/openssl.log").c_str()), 0)
      << command;
}

// A new authority with one certificate for 127.0.0.1, good for servers and workers.
TlsFiles MakeAuthority(const std::string& name) {
  const std::string at = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  const std::string new_key = " -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes ";
  Run("openssl req -x509" + new_key + "-days 2 -subj /CN=" + name + " -keyout " + at + "-ca.key -out " + at +
      "-ca.crt");
  Run("openssl req -new" + new_key + "-subj /CN=node -keyout " + at + ".key -out " + at + ".csr");
  Run("printf 'subjectAltName=IP:127.0.0.1,URI:catchment:role/server,URI:catchment:role/worker\\n' > " + at +
      ".ext");
  Run("openssl x509 -req -in " + at + ".csr -CA " + at + "-ca.crt -CAkey " + at +
      "-ca.key -set_serial 1 -days 2 " + "-extfile " + at + ".ext -out " + at + ".crt");
  return {at + "-ca.crt", at + ".crt", at + ".key"};
}

class TlsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ours_ = new TlsFiles(MakeAuthority("ours"));
    theirs_ = new TlsFiles(MakeAuthority("theirs"));
    servers_ = new TestServers(GradientJob(false), FlatLayout(kValues, 2, 16), {*ServerCredentials(*ours_)});
    servers_->SetRosters({MakeRoster(0, {0})});
  }
  static void TearDownTestSuite() {
    delete servers_;
    delete ours_;
    delete theirs_;
  }

  // Returns the status of a pull by a worker with these credentials, which gives up quickly.
  static absl::Status PullWith(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    const SettableClock clock(25);
    ParameterClient::Options options;
    options.servers = servers_->addresses();
    options.credentials = credentials;
    options.job = "test";
    options.incarnation = IncarnationOf(0);
    options.run_id = kRunId;
    options.token = TestToken(options.incarnation);
    ParameterClient client(options, &servers_->layout(), &clock);
    std::vector<float> weights(kValues);
    return client.Pull(0, absl::MakeSpan(weights));
  }
  static void ExpectRefused(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    const absl::Status status = PullWith(credentials);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()),
                MatchesRegex("server [01] at .* was unreachable for 60 s: .*"));
  }

  static TlsFiles *ours_, *theirs_;
  static TestServers* servers_;
};
TlsFiles* TlsTest::ours_;
TlsFiles* TlsTest::theirs_;
TestServers* TlsTest::servers_;

TEST_F(TlsTest, PeersOfOneAuthorityWorkTogether) {
  const auto credentials = *ClientCredentials(*ours_);
  EXPECT_TRUE(PullWith(credentials).ok());
  std::vector<float> weights(kValues);
  EXPECT_TRUE(SnapshotReader(servers_->addresses(), credentials, kRunId, &servers_->layout())
                  .Read(absl::MakeSpan(weights))
                  .ok());
}

TEST_F(TlsTest, ClientWithoutACertificateIsRefused) {
  std::string ca(1 << 16, '\0');
  FILE* const file = std::fopen(ours_->ca.c_str(), "r");
  ASSERT_NE(file, nullptr);
  ca.resize(std::fread(ca.data(), 1, ca.size(), file));
  std::fclose(file);
  ExpectRefused(grpc::SslCredentials({ca, "", ""}));
}

TEST_F(TlsTest, ClientOfAForeignAuthorityIsRefused) {
  // It trusts the server; the server does not trust it.
  ExpectRefused(*ClientCredentials({ours_->ca, theirs_->cert, theirs_->key}));
}

TEST_F(TlsTest, ClientRefusesAServerOfAForeignAuthority) {
  ExpectRefused(*ClientCredentials({theirs_->ca, ours_->cert, ours_->key}));
}

TEST_F(TlsTest, ClientInTheClearIsRefused) { ExpectRefused(grpc::InsecureChannelCredentials()); }

TEST_F(TlsTest, KeyOfAnotherCertificateIsRefused) {
  const TlsFiles mixed = {ours_->ca, ours_->cert, theirs_->key};
  EXPECT_EQ(ServerCredentials(mixed).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ClientCredentials(mixed).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace catchment
