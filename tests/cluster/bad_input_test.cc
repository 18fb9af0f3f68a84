// Mistakes of users and failures of networks: each ends the daemon with exit code 1, or 2 for a wrong command
// line, and a message that names the problem and its solution.
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int kFailed = 1, kUsage = 2;

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = TestDirectory() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

std::string GoodJob() { return WriteFile("job.textproto", SmallJob("sync", "epochs: 1")); }

// Expects the reason on a separate line, after the program's name.
void ExpectRefusal(const std::vector<std::string>& argv, const testing::Matcher<const std::string&>& message,
                   int exit_code = kFailed) {
  const Finished finished = RunToEnd(argv);
  EXPECT_EQ(finished.end.signal, 0) << finished.output;
  EXPECT_EQ(finished.end.exit_code, exit_code) << finished.output;
  EXPECT_THAT(finished.output, message);
}

std::vector<std::string> Server(const std::string& job, std::vector<std::string> more = {}) {
  std::vector<std::string> argv = {ServerProgram(), "--job=" + job};
  argv.insert(argv.end(), more.begin(), more.end());
  return argv;
}

// --------------------------------------------------------------------------------------------------- servers

TEST(BadServerTest, PortInUse) {
  TestCluster cluster({SmallJob("sync", "")});
  ASSERT_TRUE(cluster.StartServers());
  ExpectRefusal(Server(GoodJob(), {"--servers=" + cluster.master()}),
                HasSubstr("catchment_server: cannot listen on " + cluster.master() +
                          ": Address already in use; choose another port"));
}

TEST(BadServerTest, HostOfAnotherMachine) {
  ExpectRefusal(Server(GoodJob(), {"--servers=192.0.2.1:7000", "--insecure"}),
                HasSubstr("cannot listen on 192.0.2.1:7000: Cannot assign requested address"));
}

TEST(BadServerTest, HostOfAnotherMachineByItsIpv6Address) {
  ExpectRefusal(Server(GoodJob(), {"--servers=[2001:db8::1]:7000", "--insecure"}),
                AllOf(HasSubstr("cannot listen on [2001:db8::1]:7000: "), Not(HasSubstr("not known"))));
}

TEST(BadServerTest, ClearTextOverANetwork) {
  for (const char* servers : {"0.0.0.0:0", "127.0.0.1:0,192.0.2.1:7000"}) {
    ExpectRefusal(Server(GoodJob(), {absl::StrCat("--servers=", servers)}),
                  AllOf(HasSubstr("is not on this machine's loopback interface"), HasSubstr("--insecure")),
                  kUsage);
  }
}

TEST(BadServerTest, AddressWithoutPort) {
  ExpectRefusal(Server(GoodJob(), {"--servers=localhost"}), HasSubstr("'localhost' is not HOST:PORT"),
                kUsage);
  // Also of another server, to which this one does not listen.
  ExpectRefusal(Server(GoodJob(), {"--servers=127.0.0.1:0,http://node1:7000", "--insecure"}),
                HasSubstr("'http://node1:7000' is not HOST:PORT"), kUsage);
}

TEST(BadServerTest, IndexOutOfRange) {
  ExpectRefusal(Server(GoodJob(), {"--servers=127.0.0.1:0,127.0.0.1:0", "--index=2"}),
                HasSubstr("--index=2 is out of range: --servers lists 2 servers, numbered from 0"), kUsage);
  ExpectRefusal(Server(GoodJob(), {"--index=-1"}), HasSubstr("--index=-1"), kUsage);
}

// Another program's files are neither appended to nor replaced.
TEST(BadServerTest, FilesOfOthersInItsDirectories) {
  namespace fs = std::filesystem;
  for (const char* name : {"metrics.jsonl", "summary.json", "model.safetensors", "tensorboard/events",
                           "checkpoints/epoch3.pt", "master.address", "master.lock"}) {
    const std::string out = TestDirectory() + "/out", path = out + "/" + name;
    fs::remove_all(out);
    fs::create_directories(fs::path(path).parent_path());
    WriteFile(std::string("out/") + name, "without a newline");
    for (int time = 0; time < 2; ++time) {
      ExpectRefusal(Server(GoodJob(), {"--out=" + out}),
                    AllOf(HasSubstr(out + "/" + std::string(name).substr(0, std::string(name).find('/'))),
                          HasSubstr("was not written by Catchment")));
      std::ifstream file(path);
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "without a newline") << name;
    }
  }
}

TEST(BadServerTest, NoJobFile) {
  ExpectRefusal({ServerProgram()}, HasSubstr("--job=FILE is required"), kUsage);
  const std::string missing = TestDirectory() + "/no-such.textproto";
  ExpectRefusal(Server(missing), HasSubstr(missing));
  const std::string pipe = TestDirectory() + "/pipe.textproto";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ExpectRefusal(Server(pipe), HasSubstr(pipe + ": is not a regular file"));
}

TEST(BadServerTest, GarbledJobFile) {
  const std::string garbled = WriteFile("garbled.textproto", "model { layers { dense {");
  ExpectRefusal(Server(garbled), HasSubstr(garbled));
  const std::string unknown = WriteFile("unknown.textproto", SmallJob("sync", "bath_size: 3"));
  ExpectRefusal(Server(unknown), AllOf(HasSubstr(unknown), HasSubstr("bath_size")));
  const std::string impossible = WriteFile("impossible.textproto", SmallJob("asgd", "batch_size: 0"));
  ExpectRefusal(Server(impossible),
                AllOf(HasSubstr("algorithm.preset"), HasSubstr("easgd"), HasSubstr("batch_size")));
}

TEST(BadServerTest, MasterThatIsNotThere) {
  const std::string job =
      WriteFile("job.textproto", SmallJob("sync", "faults { connect_timeout_seconds: 1 }"));
  ExpectRefusal(Server(job, {"--index=1", "--servers=127.0.0.1:1,127.0.0.1:0"}),
                AllOf(HasSubstr("trying again in 0.5 s, giving up after 1 s"),
                      HasSubstr("catchment_server: gave up after 1 s: master at 127.0.0.1:1")));
}

TEST(BadServerTest, AnotherJobThanTheMaster) {
  TestCluster cluster({SmallJob("sync", ""), /*servers=*/2});
  ASSERT_TRUE(cluster.StartMaster());
  const std::string address = cluster.master();
  const std::string other = WriteFile("other.textproto", SmallJob("sync", "seed: 2"));
  ExpectRefusal(
      Server(other, {"--index=1", "--servers=" + address + ",127.0.0.1:0"}),
      HasSubstr("server 1 has a different job file than the master; give all servers the same --job"));
  ExpectRefusal(
      Server(cluster.job_file(), {"--index=1", "--servers=" + address + ",127.0.0.1:0,127.0.0.1:0"}),
      HasSubstr("does not fit a job of 2 servers; give all servers the same --servers"));
}

TEST(BadServerTest, TwoServersOfOneIndex) {
  TestCluster cluster({SmallJob("sync", ""), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "server 1 is at"));
  ExpectRefusal(cluster.ServerCommand(1, cluster.master()), HasSubstr("every server needs its own index"));
}

TEST(BadServerTest, OutputDirectoryThatCannotBe) {
  const std::string file = WriteFile("file", "");
  ExpectRefusal(Server(GoodJob(), {"--out=" + file + "/out"}), HasSubstr(file + "/out"));
}

// No checkpoint is called complete that the master cannot read.
TEST(BadServerTest, CheckpointDirectoryThatIsNotShared) {
  TestCluster cluster({SmallJob("sync", "workers: 2 epochs: 1000000 checkpoint { every_updates: 5 }"),
                       /*servers=*/2});
  ASSERT_TRUE(cluster.StartMaster());
  std::vector<std::string> argv = cluster.ServerCommand(1, cluster.master());
  argv.push_back("--checkpoint_dir=" + TestDirectory() + "/of_server_1_alone");
  absl::StatusOr<Process> server = Process::Start({"server-1", argv, TestDirectory() + "/server-1.log"});
  ASSERT_TRUE(server.ok()) << server.status();
  cluster.StartWorkers(2);
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0),
                                  "is --checkpoint_dir the same directory, shared, for all servers?"));
  ASSERT_TRUE(cluster.AwaitTrained(4000));
  EXPECT_THAT(cluster.server(0).Output(), Not(HasSubstr("is complete")));
}

TEST(BadServerTest, CheckpointDirectoryThatCannotBe) {
  const std::string file = WriteFile("file", "");
  ExpectRefusal(Server(GoodJob(), {"--checkpoint_dir=" + file + "/checkpoints"}),
                HasSubstr(file + "/checkpoints"));
}

TEST(BadServerTest, HalfOfTheTlsFiles) {
  ExpectRefusal(Server(GoodJob(), {"--tls_ca=ca.pem"}),
                HasSubstr("mutual TLS requires all of --tls_ca, --tls_cert and --tls_key"), kUsage);
  ExpectRefusal(Server(GoodJob(), {"--tls_ca=no.pem", "--tls_cert=no.pem", "--tls_key=no.pem"}),
                HasSubstr("--tls_ca=no.pem is not a readable PEM file"));
}

// ----------------------------------------------------------------------------------------------- checkpoints

TEST(BadResumeTest, NoCheckpoint) {
  const std::string empty = TestDirectory() + "/empty";
  ExpectRefusal(Server(GoodJob(), {"--resume", "--checkpoint_dir=" + empty}), HasSubstr(empty));
  std::filesystem::create_directories(empty);
  ExpectRefusal(Server(GoodJob(), {"--resume", "--checkpoint_dir=" + empty}),
                HasSubstr("there is no checkpoint to resume from in " + empty));
  ExpectRefusal(Server(GoodJob(), {"--resume"}), HasSubstr("--resume requires --checkpoint_dir (or --out)"),
                kUsage);
}

TEST(BadResumeTest, CheckpointsThatDoNotFit) {
  TestCluster cluster({SmallJob("sync", "epochs: 1")});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const std::string dir = "--checkpoint_dir=" + cluster.checkpoint_dir();

  // Starting anew would mix two runs.
  ExpectRefusal(Server(GoodJob(), {dir}), AllOf(HasSubstr(cluster.checkpoint_dir() + " contains checkpoint"),
                                                HasSubstr("--resume, or choose another directory")));
  const std::string wider = absl::StrReplaceAll(SmallJob("sync", "epochs: 1"), {{"units: 32", "units: 33"}});
  ExpectRefusal(Server(WriteFile("wider.textproto", wider), {dir, "--resume"}),
                AllOf(HasSubstr("belongs to a different job"), HasSubstr("model")));

  // Damaged: nothing to go on from, and it says why.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(cluster.checkpoint_dir())) {
    if (entry.path().extension() == ".safetensors") std::filesystem::resize_file(entry.path(), 1000);
  }
  ExpectRefusal(Server(GoodJob(), {dir, "--resume"}),
                AllOf(HasSubstr("there is no checkpoint to resume from"), HasSubstr("skipped checkpoint"),
                      HasSubstr("shard-0-of-1.safetensors")));
}

TEST(BadResumeTest, ServersThatDisagree) {
  TestCluster::Options options{SmallJob("sync", "epochs: 1"), /*servers=*/2};
  {
    TestCluster cluster(options);
    ASSERT_TRUE(cluster.StartServers());
    cluster.StartWorkers(1);
    ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  }
  options.resume = AutoSwitch::kOn;
  options.job = SmallJob("sync", "epochs: 2");  // of which half is done
  TestCluster again(options);
  ASSERT_TRUE(again.StartServers());
  ASSERT_TRUE(again.AwaitOutput(again.server(0), "server 1 is at"));
  ExpectRefusal(Server(again.job_file(), {"--index=1", "--servers=" + again.master() + ",127.0.0.1:0"}),
                HasSubstr("every server needs its own index"));
}

// --------------------------------------------------------------------------------------------------- workers

TEST(BadWorkerTest, WrongFlags) {
  ExpectRefusal({WorkerProgram()}, HasSubstr("--master=HOST:PORT|DIR is required"), kUsage);
  ExpectRefusal({WorkerProgram(), "--master=http://127.0.0.1:1"}, HasSubstr("leave out http://"), kUsage);
  ExpectRefusal({WorkerProgram(), "--master=127.0.0.1:1", "--role=boss"},
                HasSubstr("--role=boss is not worker or evaluator"), kUsage);
  ExpectRefusal({WorkerProgram(), "--master=127.0.0.1:1", "--threads=0"},
                HasSubstr("--threads=0: takes a whole number, at least 1"), kUsage);
}

TEST(BadWorkerTest, MasterThatIsNotThere) {
  for (const char* role : {"worker", "evaluator"}) {
    ExpectRefusal(
        {WorkerProgram(), "--master=127.0.0.1:1", "--connect_timeout_seconds=3",
         absl::StrCat("--role=", role)},
        AllOf(HasSubstr("trying again in 0.1 s, giving up after 3 s"), HasSubstr("trying again in 0.2 s"),
              HasSubstr("catchment_worker: gave up after 3 s: master at 127.0.0.1:1")));
  }
}

TEST(BadWorkerTest, MasterThatIsNotThereAndASignal) {
  absl::StatusOr<Process> worker =
      Process::Start({"worker", {WorkerProgram(), "--master=127.0.0.1:1"}, TestDirectory() + "/worker.log"});
  ASSERT_TRUE(worker.ok());
  ASSERT_TRUE(Await([&] { return worker->Output().find("trying again") != std::string::npos; }));
  worker->Signal(SIGTERM);
  const std::optional<ProcessEnd> end = worker->WaitFor(kPatience);
  ASSERT_TRUE(end.has_value()) << worker->Output();
  EXPECT_EQ(end->exit_code, 0) << worker->Output();
  EXPECT_EQ(end->signal, 0) << worker->Output();
}

// Returns how often a worker reported that it will try again.
int Tries(const std::string& output) {
  return static_cast<int>(std::vector<std::string>(absl::StrSplit(output, "trying again")).size()) - 1;
}

TEST(BadWorkerTest, MasterThatComesLateIsFoundByTheNextTry) {
  // A port that is free now.
  std::string address;
  {
    TestCluster cluster({SmallJob("sync", "")});
    ASSERT_TRUE(cluster.StartServers());
    address = cluster.master();
  }
  absl::StatusOr<Process> worker =
      Process::Start({"worker", {WorkerProgram(), "--master=" + address}, TestDirectory() + "/worker.log"});
  ASSERT_TRUE(worker.ok());
  ASSERT_TRUE(Await([&] { return worker->Output().find("trying again in 0.8 s") != std::string::npos; }));
  absl::StatusOr<Process> master = Process::Start(
      {"master", Server(GoodJob(), {"--servers=" + address}), TestDirectory() + "/master.log"});
  ASSERT_TRUE(master.ok());
  ASSERT_TRUE(Await([&] { return master->Output().find("listening on ") != std::string::npos; }));
  const int before = Tries(worker->Output());
  const std::optional<ProcessEnd> end = master->WaitFor(kPatience);
  ASSERT_TRUE(end.has_value() && end->exit_code == 0) << master->Output() << worker->Output();
  // One try may have been under way when the master began to listen, and one may not have been written yet.
  EXPECT_LE(Tries(worker->Output()), before + 2) << worker->Output();
}

TEST(BadWorkerTest, DataThatIsMissing) {
  const std::string job =
      absl::StrReplaceAll(SmallJob("sync", "epochs: 1"),
                          {{"drawn_digits { train_samples: 2000 test_samples: 500 }", "mnist {}"}});
  TestCluster cluster({job});
  ASSERT_TRUE(cluster.StartServers());
  std::vector<std::string> argv = {"/usr/bin/env",           "-u", "CATCHMENT_DATA", "-u", "XDG_CACHE_HOME",
                                   "HOME=" + TestDirectory()};
  const std::vector<std::string> worker = cluster.WorkerCommand();
  argv.insert(argv.end(), worker.begin(), worker.end());
  ExpectRefusal(argv, AllOf(HasSubstr(TestDirectory() + "/.cache/catchment/mnist"),
                            HasSubstr("CATCHMENT_DATA"), HasSubstr("deploy/fetch_mnist.sh")));
}

TEST(BadWorkerTest, GpuThatIsMissing) {
  if (std::filesystem::exists("/dev/nvidia0")) GTEST_SKIP() << "this machine has a GPU";
  TestCluster cluster({SmallJob("sync", "epochs: 1")});
  ASSERT_TRUE(cluster.StartServers());
  std::vector<std::string> argv = cluster.WorkerCommand();
  argv.push_back("--device=cuda");
  ExpectRefusal(argv, AllOf(HasSubstr("catchment_worker: "), HasSubstr("CUDA"), HasSubstr("CPU")));
}

TEST(BadWorkerTest, LastWorkerThatCannotGoOnFailsTheJobWithItsReason) {
  // Registered, and then its learning rate leads nowhere.
  const std::string diverging = SmallJob("downpour", "epochs: 100 optimizer { learning_rate: 1e30 }");
  TestCluster cluster({diverging});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitExit(cluster.server(0), 1));
  ASSERT_TRUE(Await([&] { return cluster.worker(0).Poll().has_value(); })) << cluster.LastWords();
}

// ------------------------------------------------------------------------------------------------ divergence

class DivergenceTest : public testing::TestWithParam<std::string> {};

// The message names the server if the center's weights overflow first, otherwise the worker whose
// contributions are refused.
TEST_P(DivergenceTest, JobFailsNamingWhereAndTheRemedy) {
  const std::string job =
      SmallJob(GetParam(),
               "epochs: 1000000 workers: 2 optimizer { learning_rate: 1e30 } faults { non_finite_limit: 3 }");
  TestCluster cluster({job, /*servers=*/2});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitExit(cluster.server(0), 1));
  EXPECT_THAT(cluster.server(0).Output(),
              AllOf(HasSubstr("NaN or an infinity"), HasSubstr(": training has diverged"),
                    HasSubstr("lower optimizer.learning_rate")));
  ASSERT_TRUE(cluster.AwaitExit(cluster.server(1), 1));
  EXPECT_THAT(cluster.server(1).Output(), HasSubstr("the job failed: "));
  for (Process* member : {&cluster.worker(0), &cluster.worker(1), &cluster.evaluator(0)}) {
    ASSERT_TRUE(cluster.AwaitExit(*member, 1));
    EXPECT_THAT(member->Output(),
                AllOf(HasSubstr("the job has failed: "), HasSubstr("training has diverged")));
  }
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "FAILED");
  EXPECT_THAT(std::string(summary["reason"]), HasSubstr("training has diverged"));
  EXPECT_FALSE(std::filesystem::exists(cluster.out_dir() + "/model.safetensors"))
      << "weights that are not numbers";
}

INSTANTIATE_TEST_SUITE_P(All, DivergenceTest,
                         testing::Values("sync", "downpour", "easgd", "easgd_sync", "eamsgd"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace catchment
