// Mutual TLS on every connection, with a certificate for each role.
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::HasSubstr;

TestCluster::Options Options(const std::string& certificates) {
  TestCluster::Options options{SmallJob("downpour", "workers: 2 epochs: 5"), /*servers=*/2};
  options.certificates = certificates;
  return options;
}

std::vector<std::string> WorkerCommand(const TestCluster& cluster, const std::vector<std::string>& flags) {
  std::vector<std::string> argv = cluster.WorkerCommand();
  argv.push_back("--connect_timeout_seconds=1");
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

TEST(TlsTest, JobTrainsWithCertificatesOnEveryConnection) {
  TestCluster cluster(Options(MakeCertificates("ours")));
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_EQ(cluster.Summary()["samples"], 10000);
  EXPECT_TRUE(cluster.Summary()["test_accuracy"].is_number()) << "the evaluator may read and report";
}

TEST(TlsTest, WorkerWithoutOrWithAStrangersCertificateIsRefused) {
  TestCluster cluster(Options(MakeCertificates("ours")));
  ASSERT_TRUE(cluster.StartServers());
  const Finished without = RunToEnd(WorkerCommand(cluster, {}));
  EXPECT_EQ(without.end.exit_code, 1);
  EXPECT_THAT(without.output, HasSubstr("gave up after 1 s: master at " + cluster.master()));
  EXPECT_THAT(without.output, HasSubstr("--tls_ca")) << "it does not say what may be wrong";

  const TlsFiles theirs = CertificateOf(MakeCertificates("theirs"), "worker");
  const Finished stranger = RunToEnd(WorkerCommand(cluster, TlsArguments(theirs)));
  EXPECT_EQ(stranger.end.exit_code, 1);
  EXPECT_THAT(stranger.output, HasSubstr("gave up after 1 s: master at " + cluster.master()));
  EXPECT_THAT(stranger.output, HasSubstr("--tls_ca")) << "it does not say what may be wrong";
}

TEST(TlsTest, DaemonsWithTheCertificateOfAnotherRoleEndWithTheReason) {
  const std::string certificates = MakeCertificates("ours");
  TestCluster cluster(Options(certificates));
  ASSERT_TRUE(cluster.StartMaster());
  std::vector<std::string> second = cluster.ServerCommand(1, cluster.master());
  for (const std::string& flag : TlsArguments(CertificateOf(certificates, "worker"))) second.push_back(flag);
  const Finished server = RunToEnd(second);
  EXPECT_EQ(server.end.exit_code, 1);
  EXPECT_THAT(server.output, HasSubstr("MasterService.RegisterServer is for the roles server; "
                                       "the roles in the caller's certificate: worker"));
  ASSERT_TRUE(cluster.StartServers());
  const Finished worker =
      RunToEnd(WorkerCommand(cluster, TlsArguments(CertificateOf(certificates, "evaluator"))));
  EXPECT_EQ(worker.end.exit_code, 1);
  EXPECT_THAT(worker.output, HasSubstr("MasterService.Register is for the roles worker; the roles in the "
                                       "caller's certificate: evaluator"));
}

TEST(TlsTest, WorkerWithCertificatesOnAPlainMasterSaysSo) {
  TestCluster cluster({SmallJob("downpour", "epochs: 5")});
  ASSERT_TRUE(cluster.StartServers());
  const Finished finished =
      RunToEnd(WorkerCommand(cluster, TlsArguments(CertificateOf(MakeCertificates("ours"), "worker"))));
  EXPECT_EQ(finished.end.exit_code, 1);
  EXPECT_THAT(finished.output, HasSubstr("--tls_ca"));
}

TEST(TlsTest, KeyOfAnotherCertificateIsRefusedAtStart) {
  TlsFiles mixed = CertificateOf(MakeCertificates("ours"), "server");
  mixed.key = CertificateOf(MakeCertificates("theirs"), "server").key;
  TestCluster cluster({SmallJob("downpour", "")});
  std::vector<std::string> argv = cluster.ServerCommand(0, "");
  for (const std::string& flag : TlsArguments(mixed)) argv.push_back(flag);
  const Finished finished = RunToEnd(argv);
  EXPECT_EQ(finished.end.exit_code, 1) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("are not a matching key and certificate"));
}

// A job goes on while all its files are replaced by those of a new authority, again and again: connections
// that are open stay open, and new processes need the new files.
TEST(TlsTest, WorkersJoinWithANewAuthorityWithoutARestart) {
  const std::string certificates = MakeCertificates("ours");
  TestCluster::Options options{SmallJob("downpour", "workers: 1 epochs: 1000000"), /*servers=*/2};
  options.certificates = certificates;
  TestCluster cluster(options);
  ASSERT_TRUE(cluster.Start(1));
  ASSERT_TRUE(cluster.AwaitTrained(1000));
  for (int workers = 2; workers <= 5; ++workers) {
    for (const auto& file :
         std::filesystem::directory_iterator(MakeCertificates(absl::StrCat("authority", workers)))) {
      const std::string name = file.path().filename();
      std::filesystem::copy_file(file.path(), certificates + "/.new",
                                 std::filesystem::copy_options::overwrite_existing);
      std::filesystem::rename(certificates + "/.new", certificates + "/" + name);
    }
    cluster.StartWorkers(1);
    ASSERT_TRUE(cluster.AwaitStatus("the next worker to train", AllHaveTrained(workers, 1000)));
  }
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
}

}  // namespace
}  // namespace catchment
