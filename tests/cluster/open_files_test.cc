// Servers that may have too few open files, with real limits.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"
#include "tests/server/edge/http2_peer.h"

namespace catchment {
namespace {

using testing::HasSubstr;

// Returns a command line that runs the command with a limit of `files` open files.
std::vector<std::string> WithLimit(int files, std::vector<std::string> argv) {
  const std::string script = absl::StrCat("ulimit -n ", files, " && exec \"$0\" \"$@\"");
  std::vector<std::string> command = {"/bin/sh", "-c", script};
  command.insert(command.end(), argv.begin(), argv.end());
  return command;
}

std::string JobFile(const std::string& more) {
  const std::string path = TestDirectory() + "/job.textproto";
  std::ofstream(path) << SmallJob("downpour", more);
  return path;
}

// Connections to a port of this machine over which nothing comes.
class SilentPeers {
 public:
  ~SilentPeers() { Close(); }

  void AddOne(int port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    fds_.push_back(fd);
  }
  void Close() {
    for (const int fd : fds_) close(fd);
    fds_.clear();
  }
  size_t size() const { return fds_.size(); }

 private:
  std::vector<int> fds_;
};

std::string AddressOf(const Process& server, int index) {
  const std::string mark = absl::StrCat("catchment_server ", index, ": listening on ");
  const std::string output = server.Output();
  const size_t at = output.find(mark);
  const size_t end = at == std::string::npos ? at : output.find('\n', at);
  return end == std::string::npos ? "" : output.substr(at + mark.size(), end - at - mark.size());
}

class OpenFilesTest : public testing::Test {
 protected:
  Process Start(const std::string& name, std::vector<std::string> argv) {
    Command command;
    command.name = name;
    command.argv = std::move(argv);
    command.log = TestDirectory() + "/" + name + ".log";
    absl::StatusOr<Process> process = Process::Start(command);
    EXPECT_TRUE(process.ok()) << process.status();
    return *std::move(process);
  }
  // A worker trains the job of the master at this address, and both end in order.
  void ExpectAWorkerTrainsItsJob(const std::string& address, Process* master) {
    Process worker = Start("worker", {WorkerProgram(), "--master=" + address});
    EXPECT_TRUE(Await([&] { return worker.Poll().has_value(); })) << worker.Output() << master->Output();
    EXPECT_EQ(worker.WaitFor(0)->exit_code, 0) << worker.Output();
    const std::optional<ProcessEnd> end = master->WaitFor(kPatience);
    ASSERT_TRUE(end) << master->Output();
    EXPECT_EQ(end->exit_code, 0) << master->Output();
  }
};

TEST_F(OpenFilesTest, AJobOfMoreWorkersThanFilesIsRefusedWithTheLimitAndHowToRaiseIt) {
  const Finished run = RunToEnd(
      WithLimit(256, {ServerProgram(), "--job=" + JobFile("workers: 500"), "--servers=127.0.0.1:0"}));
  EXPECT_EQ(run.end.exit_code, 1) << run.output;
  EXPECT_THAT(run.output,
              HasSubstr("workers: 500 needs about 1051 open files, and this process may have 256"));
  EXPECT_THAT(run.output, HasSubstr("ulimit -Hn"));
}

TEST_F(OpenFilesTest, TheSoftLimitIsRaisedToTheHardOne) {
  // With a limit of 60 the job would be refused.
  const std::string script = "ulimit -Sn 60 && exec \"$0\" \"$@\"";
  Process server = Start("server", {"/bin/sh", "-c", script, ServerProgram(),
                                    "--job=" + JobFile("workers: 10"), "--servers=127.0.0.1:0"});
  EXPECT_TRUE(Await([&] { return !AddressOf(server, 0).empty() || server.Poll().has_value(); }));
  EXPECT_FALSE(server.Poll().has_value()) << server.Output();
}

// More connections than the server may have files, over which nothing comes, for as long as a job begins,
// trains and ends.
TEST_F(OpenFilesTest, SilentPeersDoNotKeepWorkersFromTheJob) {
  const std::string job = "--job=" + JobFile("workers: 1 epochs: 20");
  Process master = Start("master", WithLimit(80, {ServerProgram(), job, "--servers=127.0.0.1:0"}));
  ASSERT_TRUE(Await([&] { return !AddressOf(master, 0).empty() || master.Poll().has_value(); }));
  const std::string address = AddressOf(master, 0);
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << master.Output();
  SilentPeers peers;
  while (peers.size() < 200) peers.AddOne(port);
  ExpectAWorkerTrainsItsJob(address, &master);
}

// A peer that makes a call on each connection, with connections for all the files that the server may have.
TEST_F(OpenFilesTest, OnePeerWithManyCallsDoesNotKeepWorkersFromTheJob) {
  const std::string job = "--job=" + JobFile("workers: 1 epochs: 20");
  Process master = Start("master", WithLimit(256, {ServerProgram(), job, "--servers=127.0.0.1:0"}));
  ASSERT_TRUE(Await([&] { return !AddressOf(master, 0).empty() || master.Poll().has_value(); }));
  const std::string address = AddressOf(master, 0);
  std::vector<std::unique_ptr<Http2Peer>> peers;
  while (peers.size() < 300) {
    peers.push_back(std::make_unique<Http2Peer>(address));
    Http2Peer& peer = *peers.back();
    const uint32_t call = peer.Call("/catchment.v1.MasterService/GetStatus", "");
    if (!peer.SendLast(call, GrpcMessage(""))) continue;
    EXPECT_TRUE(peer.ReadUntil([&] { return peer.Ended(call); }));
  }
  ExpectAWorkerTrainsItsJob(address, &master);
}

}  // namespace
}  // namespace catchment
