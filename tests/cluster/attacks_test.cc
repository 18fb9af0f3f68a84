// What anyone who reaches the ports of a job in clear text can try, except to take part in it: the job trains on, its
// server's memory stays below the bound that docs/operating.md states, and the model is written at the end.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/job/data_sources.h"
#include "common/job/job_layout.h"
#include "common/model_shapes.h"
#include "gmock/gmock.h"
#include "proto/wire.grpc.pb.h"
#include "tests/cluster/test_cluster.h"
#include "tests/server/http2_peer.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr char kTrain[] = "/catchment.v1.ShardService/Train";
constexpr char kGetStatus[] = "/catchment.v1.MasterService/GetStatus";
constexpr char kSnapshot[] = "/catchment.v1.ShardService/Snapshot";
constexpr char kStop[] = "/catchment.v1.MasterService/Stop";
// docs/operating.md, "Memory": 1 GiB, and for the worker 16 MiB and 16 blocks of at most 102 KB; and 128 MiB for what gRPC
// does not count.
constexpr int64_t kBoundKib = (1024 + 16 + 2 + 128) << 10;

class AttacksTest : public testing::Test {
 protected:
  AttacksTest()
      : cluster_({SmallJob("downpour", "workers: 1 epochs: 1000000 checkpoint { every_seconds: 0 }")}) {}

  void SetUp() override {
    ASSERT_TRUE(cluster_.Start(1));
    ASSERT_TRUE(cluster_.AwaitTrained(1000));
    before_kib_ = MemoryKib();
    stub_ = v1::MasterService::NewStub(Connect(cluster_.master(), grpc::InsecureChannelCredentials()));
  }

  // The job trains on, within the bound, and is then stopped in order.
  void TearDown() override {
    const absl::StatusOr<v1::JobStatus> status = cluster_.Status();
    ASSERT_TRUE(status.ok()) << status.status();
    ASSERT_TRUE(cluster_.AwaitTrained(status->samples() + 1000));
    const int64_t grown = PeakKib() - before_kib_;
    RecordProperty("grown_kib", static_cast<int>(grown));
    std::cout << "memory has grown by " << grown << " KiB" << std::endl;
    EXPECT_LT(grown, kBoundKib);
    cluster_.server(0).Signal(SIGTERM);
    ASSERT_TRUE(cluster_.AwaitOrderlyEnd());
    EXPECT_FALSE(cluster_.ModelBytes().empty());
  }

  int64_t MemoryKib() { return FromStatus("VmRSS:"); }
  int64_t PeakKib() { return FromStatus("VmHWM:"); }

  int64_t FromStatus(const std::string& key) {
    std::ifstream status(absl::StrCat("/proc/", cluster_.server(0).pid(), "/status"));
    for (std::string line; std::getline(status, line);) {
      if (line.rfind(key, 0) == 0) return std::stoll(line.substr(key.size()));
    }
    return 0;
  }

  // A TCP connection to the master.
  int OpenSocket() {
    const std::string& address = cluster_.master();
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    to.sin_port = htons(static_cast<uint16_t>(port));
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    return fd;
  }

  TestCluster cluster_;
  int64_t before_kib_ = 0;
  std::unique_ptr<Http2Peer> slow_reader_;
  std::unique_ptr<v1::MasterService::Stub> stub_;
};

TEST_F(AttacksTest, Garbage) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string openings[] = {"GET / HTTP/1.1\r\n\r\n",
                                  std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9),
                                  std::string(4096, '\xff'), preface + std::string(4096, '\xff'), ""};
  std::vector<int> sockets;
  for (int i = 0; i < 200; ++i) {
    sockets.push_back(OpenSocket());
    const std::string& bytes = openings[i % std::size(openings)];
    send(sockets.back(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Silent connections are closed, too.
  for (const int fd : sockets) {
    char buffer[4096];
    while (recv(fd, buffer, sizeof(buffer), 0) > 0) {
    }
    close(fd);
  }
}

TEST_F(AttacksTest, StreamsWithoutAnAcceptableHello) {
  std::vector<std::unique_ptr<Http2Peer>> peers;
  for (int connection = 0; connection < 4; ++connection) {
    peers.push_back(std::make_unique<Http2Peer>(cluster_.master()));
    for (int i = 0; i < 100; ++i) peers.back()->Call(kTrain, i % 2 == 0 ? "nonsense" : "");
  }
  for (const auto& peer : peers) EXPECT_TRUE(peer->ReadUntil([&] { return peer->NumEnded() == 100; }));
}

TEST_F(AttacksTest, StreamsThatAreResetAtOnce) {
  Http2Peer peer(cluster_.master());
  for (int i = 0; i < 6000; ++i) peer.Reset(peer.Call(kTrain, "nonsense"));
}

TEST_F(AttacksTest, AnswersThatAreNotRead) {
  std::vector<std::unique_ptr<Http2Peer>> peers;
  for (int connection = 0; connection < 5; ++connection) {
    peers.push_back(std::make_unique<Http2Peer>(cluster_.master(), /*window=*/0));
    for (int i = 0; i < 99; ++i) peers.back()->SendLast(peers.back()->Call(kGetStatus, ""), GrpcMessage(""));
  }
  const absl::StatusOr<v1::JobStatus> status = cluster_.Status();
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_TRUE(cluster_.AwaitTrained(status->samples() + 1000));
}

// They cannot keep the master from reading the final weights (TearDown).
TEST_F(AttacksTest, SnapshotsThatAreNotRead) {
  v1::GetJobReply job;
  ASSERT_TRUE(stub_->GetJob(DeadlineContext(60).get(), {}, &job).ok());
  const DataShape data = ShapeOf(job.job().data());
  const auto layers = InferShapes(job.job().model(), data.input, data.target);
  ASSERT_TRUE(layers.ok()) << layers.status();
  v1::SnapshotRequest request;
  request.set_fingerprint(LayoutOf(job.job(), ListTensors(*layers), 1)->fingerprint());
  request.set_run_id(job.run_id());
  slow_reader_ = std::make_unique<Http2Peer>(cluster_.master(), /*window=*/1000);
  constexpr int kReaders = 20;
  for (int i = 0; i < kReaders; ++i) {
    slow_reader_->SendLast(slow_reader_->Call(kSnapshot, ""), GrpcMessage(request.SerializeAsString()));
  }
  // Eight are served.
  EXPECT_TRUE(slow_reader_->ReadUntil([&] { return slow_reader_->NumEnded() == kReaders - 8; }));
}

TEST_F(AttacksTest, CompressedMessages) {
  v1::StopRequest request;
  request.set_reason(std::string(3 << 20, 'a'));
  const auto context = DeadlineContext(60);
  context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::StopReply reply;
  EXPECT_EQ(stub_->Stop(context.get(), request, &reply).error_code(), grpc::UNIMPLEMENTED);
}

// Each announces a gigabyte, and sends what the server takes.
TEST_F(AttacksTest, MessagesThatAnnounceAGigabyte) {
  const std::string part(16 << 20, 'x');
  std::vector<std::unique_ptr<Http2Peer>> peers;
  for (int i = 0; i < 8; ++i) peers.push_back(std::make_unique<Http2Peer>(cluster_.master()));
  for (const auto& peer : peers) {
    const uint32_t stream = peer->Call(kStop, "");
    if (!peer->Send(stream, GrpcMessage("x", 1u << 30), 5)) continue;
    for (int i = 0; i < 20 && peer->Send(stream, part, 5); ++i) {
    }
  }
}

// Registrations that do not fit the job, faster than the master takes them from one address. A worker that comes then
// tries again until it is registered.
TEST_F(AttacksTest, RegistrationsWithoutEnd) {
  for (int i = 0; i < 5000; ++i) {
    v1::RegisterReply reply;
    const grpc::Status status = stub_->Register(DeadlineContext(60).get(), {}, &reply);
    ASSERT_TRUE(status.error_code() == grpc::FAILED_PRECONDITION || status.error_code() == grpc::UNAVAILABLE)
        << status.error_message();
  }
  cluster_.StartWorkers(1);
  while (true) {
    const absl::StatusOr<v1::JobStatus> status = cluster_.Status();
    ASSERT_TRUE(status.ok()) << status.status();
    if (status->workers_size() == 2) break;
    usleep(10'000);
  }
}

TEST_F(AttacksTest, RegistrationsOutOfBounds) {
  v1::RegisterRequest request;
  v1::RegisterReply reply;
  request.set_train_samples(UINT64_MAX);
  grpc::Status status = stub_->Register(DeadlineContext(60).get(), request, &reply);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("RegisterRequest.train_samples"));
  request.set_train_samples(1);
  request.set_host("\x1b[2Jnode0");
  status = stub_->Register(DeadlineContext(60).get(), request, &reply);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("RegisterRequest.host has control characters"));
}

}  // namespace
}  // namespace catchment
