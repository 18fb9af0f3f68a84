// Mutual TLS on every connection.
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::HasSubstr;

// A separate authority and a certificate for this machine, created as in the README.
TlsFiles MakeCertificates(const std::string& name) {
  const std::string dir = TestDirectory() + "/" + name;
  const Finished made = RunToEnd({Runfile("deploy/make_test_certs.sh"), dir});
  EXPECT_TRUE(made.end.in_order()) << made.output;
  return {dir + "/ca.crt", dir + "/node.crt", dir + "/node.key"};
}

TestCluster::Options Options(const TlsFiles& tls) {
  TestCluster::Options options{SmallJob("downpour", "workers: 2 epochs: 5"), /*servers=*/2};
  options.tls = tls;
  return options;
}

std::vector<std::string> WorkerCommand(const TestCluster& cluster, const TlsFiles& tls) {
  std::vector<std::string> argv = cluster.WorkerCommand();
  argv.push_back("--connect_timeout_seconds=1");
  if (!tls.ca.empty()) {
    argv.insert(argv.end(), {"--tls_ca=" + tls.ca, "--tls_cert=" + tls.cert, "--tls_key=" + tls.key});
  }
  return argv;
}

TEST(TlsTest, JobTrainsWithCertificatesOnEveryConnection) {
  TestCluster cluster(Options(MakeCertificates("ours")));
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_EQ(cluster.Summary()["samples"], 10000);
}

TEST(TlsTest, WorkerWithoutOrWithAStrangersCertificateIsRefused) {
  TestCluster cluster(Options(MakeCertificates("ours")));
  ASSERT_TRUE(cluster.StartServers());
  const Finished without = RunToEnd(WorkerCommand(cluster, TlsFiles()));
  EXPECT_EQ(without.end.exit_code, 1);
  EXPECT_THAT(without.output, HasSubstr("gave up after 1 s: master at " + cluster.master()));
  EXPECT_THAT(without.output, HasSubstr("--tls_ca")) << "it does not say what may be wrong";

  const Finished stranger = RunToEnd(WorkerCommand(cluster, MakeCertificates("theirs")));
  EXPECT_EQ(stranger.end.exit_code, 1);
  EXPECT_THAT(stranger.output, HasSubstr("gave up after 1 s: master at " + cluster.master()));
  EXPECT_THAT(stranger.output, HasSubstr("--tls_ca")) << "it does not say what may be wrong";
}

TEST(TlsTest, WorkerWithCertificatesOnAPlainMasterSaysSo) {
  TestCluster cluster({SmallJob("downpour", "epochs: 5")});
  ASSERT_TRUE(cluster.StartServers());
  const Finished finished = RunToEnd(WorkerCommand(cluster, MakeCertificates("ours")));
  EXPECT_EQ(finished.end.exit_code, 1);
  EXPECT_THAT(finished.output, HasSubstr("--tls_ca"));
}

TEST(TlsTest, KeyOfAnotherCertificateIsRefusedAtStart) {
  TestCluster::Options options = Options(MakeCertificates("ours"));
  TlsFiles mixed = options.tls;
  mixed.key = MakeCertificates("theirs").key;
  TestCluster cluster({SmallJob("downpour", "")});
  std::vector<std::string> argv = cluster.ServerCommand(0, "");
  argv.insert(argv.end(), {"--tls_ca=" + mixed.ca, "--tls_cert=" + mixed.cert, "--tls_key=" + mixed.key});
  const Finished finished = RunToEnd(argv);
  EXPECT_EQ(finished.end.exit_code, 1) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("certificate and key do not belong together"));
}

}  // namespace
}  // namespace catchment
