// Attacks by anyone who reaches the ports of a job in clear text, short of taking part in it: the job
// continues training, its server's memory stays below the bound that docs/limits.md states, and the model is
// written at the end.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/job/data_sources.h"
#include "common/job/job_layout.h"
#include "common/job/model_shapes.h"
#include "common/net/rpc.h"
#include "common/wire/protocol.h"
#include "common/wire/token.h"
#include "gmock/gmock.h"
#include "proto/wire.grpc.pb.h"
#include "server/edge/acceptor.h"
#include "tests/cluster/test_cluster.h"
#include "tests/server/edge/http2_peer.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr char kTrain[] = "/catchment.v1.ShardService/Train";
constexpr char kGetStatus[] = "/catchment.v1.MasterService/GetStatus";
constexpr char kSnapshot[] = "/catchment.v1.ShardService/Snapshot";
constexpr char kStop[] = "/catchment.v1.MasterService/Stop";
// docs/limits.md, "Memory": 1 GiB, and for the worker 16 MiB and 16 blocks of at most 102 KB; and 128 MiB for
// what gRPC does not count.
constexpr int64_t kBoundKib = (1024 + 16 + 2 + 128) << 10;

// Returns the file of a TCP connection to a server of this machine.
int Dial(const std::string& address) {
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

// Returns a number of /proc/PID/status, such as that of VmRSS in KiB.
int64_t FromStatus(const Process& process, const std::string& key) {
  std::ifstream status(absl::StrCat("/proc/", process.pid(), "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key, 0) == 0) return std::stoll(line.substr(key.size()));
  }
  return 0;
}

std::vector<TensorSpec> TensorsOf(const v1::Job& job) {
  const DataShape data = ShapeOf(job.data());
  return ListTensors(*InferShapes(job.model(), data.input, data.target));
}

// Returns the request of a worker of the job.
v1::RegisterRequest Registration(const v1::GetJobReply& job) {
  v1::RegisterRequest request;
  request.set_protocol_version(kProtocolVersion);
  request.set_run_id(job.run_id());
  request.set_train_samples(2000);
  for (const TensorSpec& tensor : TensorsOf(job.job())) {
    v1::TensorInfo* const info = request.add_tensors();
    info->set_name(tensor.name);
    info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  }
  return request;
}

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

  int64_t MemoryKib() { return FromStatus(cluster_.server(0), "VmRSS:"); }
  int64_t PeakKib() { return FromStatus(cluster_.server(0), "VmHWM:"); }

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
    sockets.push_back(Dial(cluster_.master()));
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

// Registrations that do not fit the job, faster than the master takes them from one address. A worker that
// comes then tries again until it is registered.
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

// A connection that sends without an end what is not part of any message, or calls whose answers it does not
// await.
struct Flood {
  const char* name;
  std::string opening;
  std::function<std::string()> next;
};

constexpr uint8_t kEndHeaders = 4, kEndStreamAndHeaders = 5;
// 500,000 resets have 18 MB. A server with little processor time needs a while to notice that others are
// more.
constexpr uint64_t kFloodBytes = uint64_t{4} << 30;

// Calls on streams from `first` on that begin with `fields`, and are reset at once. `message`: they have one.
std::function<std::string()> ResetCalls(uint32_t first, const std::string& fields, bool message) {
  return [=, stream = first]() mutable {
    std::string bytes;
    for (int i = 0; i < 500; ++i, stream += 2) {
      bytes += Http2Frame(Http2::kHeaders, kEndHeaders, stream, fields);
      if (message) bytes += Http2Frame(Http2::kData, 1, stream, GrpcMessage(""));
      bytes += Http2Frame(Http2::kReset, 0, stream, std::string("\0\0\0\x08", 4));
    }
    return bytes;
  };
}

// The fields of the method's calls enter the connection's table with the first, and the others refer to them.
Flood Resets(const char* name, uint32_t first, const std::string& method, bool message = false) {
  return {name,
          Http2Frame(Http2::kHeaders, kEndStreamAndHeaders, first, CallHeaders(method, /*indexed=*/true)),
          ResetCalls(first + 2, IndexedHeaders(), message)};
}

Flood Frames(const char* name, const std::string& opening, const std::string& frame) {
  std::string many;
  while (many.size() < 1 << 16) many += frame;
  return {name, opening, [many] { return many; }};
}

// `first`: the first stream that the connection has not begun.
std::vector<Flood> Floods(uint32_t first) {
  const std::string begun = Http2Frame(Http2::kHeaders, 0, first, "");
  const std::string call = Http2Frame(Http2::kHeaders, kEndHeaders, first, CallHeaders(kGetStatus));
  const std::string content(16384, 'a');
  // A field whose value is announced with 1 GiB.
  const std::string giant = std::string("\0\x01x\x7f\x81\xff\xff\xff\x03", 9);
  // A field of 3 KB in the connection's table, which a byte repeats.
  const std::string large = std::string("\x40\x01x\x7f\xb9\x16", 6) + std::string(3000, 'a');
  return {
      Resets("resets of Train", first, kTrain),
      Resets("resets of GetStatus", first, kGetStatus),
      Resets("resets of GetStatus after a message", first, kGetStatus, /*message=*/true),
      Resets("resets of an unknown method", first, "/no.such/Method"),
      Frames("CONTINUATION", begun, Http2Frame(Http2::kContinuation, 0, first, content)),
      Frames("CONTINUATION without content", begun, Http2Frame(Http2::kContinuation, 0, first, "")),
      Frames("a header of 1 GiB", Http2Frame(Http2::kHeaders, 0, first, giant),
             Http2Frame(Http2::kContinuation, 0, first, content)),
      Frames("headers that repeat a large one", Http2Frame(Http2::kHeaders, 0, first, large),
             Http2Frame(Http2::kContinuation, 0, first, std::string(16384, '\xbe'))),
      Frames("headers that enter the table", begun, Http2Frame(Http2::kContinuation, 0, first, large)),
      Frames("frames of an unknown type", "", Http2Frame(Http2{77}, 0, 0, "")),
      Frames("DATA without content", call, Http2Frame(Http2::kData, 0, first, "")),
      Frames("PING", "", Http2Frame(Http2::kPing, 0, 0, "12345678")),
      Frames("SETTINGS", "", Http2Frame(Http2::kSettings, 0, 0, "")),
      Frames("sizes of the table", "",
             Http2Frame(Http2::kSettings, 0, 0, std::string("\0\x01\0\0\0\0\0\x01\0\x01\0\0", 12))),
      Frames("PRIORITY", "", Http2Frame(Http2::kPriority, 0, 3, std::string("\0\0\0\0\x01", 5))),
      Frames("WINDOW_UPDATE", "", Http2Frame(Http2::kWindowUpdate, 0, 0, std::string("\0\0\0\x01", 4))),
  };
}

// The attacker is anybody, in clear text, or a member with its certificate.
class FloodTest : public testing::TestWithParam<const char*> {
 protected:
  FloodTest()
      : certificates_(std::string(GetParam()) == "anybody" ? "" : MakeCertificates("certificates")),
        cluster_({.job = SmallJob("downpour", "workers: 4 epochs: 1000000 checkpoint { every_seconds: 0 }"),
                  .certificates = certificates_}) {}

  TlsFiles tls() const {
    return certificates_.empty() ? TlsFiles() : CertificateOf(certificates_, GetParam());
  }
  int64_t MemoryKib(const std::string& key) { return FromStatus(cluster_.server(0), key); }
  // Returns the incarnations of the workers.
  std::vector<uint64_t> Workers() {
    const absl::StatusOr<v1::JobStatus> status = cluster_.Status();
    EXPECT_TRUE(status.ok()) << status.status();
    std::vector<uint64_t> incarnations;
    for (const v1::WorkerStatus& worker : status->workers()) incarnations.push_back(worker.incarnation());
    return incarnations;
  }
  // A connection that a worker of the job has, from 127.0.0.host, with its stream to server 0.
  std::unique_ptr<Http2Peer> Member(uint8_t host) {
    const auto credentials = *ClientCredentials(tls());
    const auto stub = v1::MasterService::NewStub(Connect(cluster_.master(), credentials));
    v1::GetJobReply job;
    EXPECT_TRUE(Await([&] { return stub->GetJob(DeadlineContext(kPatience).get(), {}, &job).ok(); }));
    const ParameterLayout layout = *LayoutOf(job.job(), TensorsOf(job.job()), 1);
    v1::RegisterReply reply;
    const grpc::Status status = stub->Register(DeadlineContext(kPatience).get(), Registration(job), &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    v1::Hello hello;
    hello.set_protocol_version(kProtocolVersion);
    hello.set_job(job.job().name());
    hello.set_fingerprint(layout.fingerprint());
    hello.set_num_shards(1);
    hello.set_worker(reply.worker());
    hello.set_incarnation(reply.incarnation());
    hello.set_run_id(job.run_id());
    hello.set_token(reply.token());
    auto peer = std::make_unique<Http2Peer>(cluster_.master(), 1 << 20, tls(), host);
    peer->Call(kTrain, hello.SerializeAsString());
    return peer;
  }

  static uint64_t Send(const Flood& flood, Http2Peer* peer) {
    std::string opening = flood.opening;
    return peer->Flood([&] { return std::exchange(opening, "") + flood.next(); }, kFloodBytes);
  }

  const std::string certificates_;
  TestCluster cluster_;
};

TEST_P(FloodTest, EndsWithItsConnectionAndCostsLittleMemory) {
  constexpr int64_t kKeptKib = 128 << 10;
  ASSERT_TRUE(cluster_.Start(4));
  ASSERT_TRUE(cluster_.AwaitStatus("4 workers", AllHaveTrained(4, 1000)));
  const std::vector<uint64_t> workers = Workers();
  const int64_t before = MemoryKib("VmRSS:");
  for (const Flood& flood : Floods(/*first=*/1)) {
    Http2Peer peer(cluster_.master(), 1 << 20, tls());
    const uint64_t bytes = Send(flood, &peer);
    EXPECT_LT(bytes, kFloodBytes) << flood.name;
    const absl::StatusOr<v1::JobStatus> status = cluster_.Status();
    ASSERT_TRUE(status.ok()) << status.status();
    ASSERT_TRUE(cluster_.AwaitTrained(status->samples() + 1000));
    std::cout << flood.name << ": ended after " << bytes << " bytes; " << MemoryKib("VmRSS:") - before
              << " KiB of memory, at most " << MemoryKib("VmHWM:") - before << std::endl;
    EXPECT_LT(MemoryKib("VmHWM:") - before, kBoundKib) << flood.name;
  }
  // Its address is named once, and the memory is returned.
  const std::string log = cluster_.server(0).Output();
  const std::string named = "which no worker does";
  const size_t at = log.find(named);
  ASSERT_NE(at, std::string::npos) << log;
  EXPECT_EQ(log.find(named, at + 1), std::string::npos) << log;
  EXPECT_TRUE(Await([&] { return MemoryKib("VmRSS:") - before < kKeptKib; }));
  EXPECT_EQ(Workers(), workers);
}

// A worker may send blocks ahead of the server, and no more calls than others. After a flood, connections
// from its address wait: each flood is from an address of its own.
TEST_P(FloodTest, OfAMemberEnds) {
  if (std::string(GetParam()) == "evaluator") return;  // it has no stream
  ASSERT_TRUE(cluster_.Start(4));
  ASSERT_TRUE(cluster_.AwaitStatus("4 workers", AllHaveTrained(4, 1000)));
  const int64_t before = MemoryKib("VmRSS:");
  uint8_t host = 1;
  for (const Flood& flood : Floods(/*first=*/3)) {
    const uint64_t bytes = Send(flood, Member(++host).get());
    EXPECT_LT(bytes, kFloodBytes) << flood.name;
    EXPECT_LT(MemoryKib("VmHWM:") - before, kBoundKib) << flood.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Peers, FloodTest, testing::Values("anybody", "worker", "evaluator"),
                         [](const auto& info) { return std::string(info.param); });

// Members that join, take a lease and vanish. A synchronous job waits for each until its heartbeats are
// missed, and then for no more of this address.
TEST(PhantomsTest, AreNotAwaitedForEver) {
  TestCluster cluster({.job = SmallJob("sync",
                                       "workers: 2 epochs: 1000000 checkpoint { every_seconds: 0 } "
                                       "faults { heartbeat_timeout_seconds: 2 }")});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitTrained(1000));
  const auto stub = v1::MasterService::NewStub(Connect(cluster.master(), grpc::InsecureChannelCredentials()));
  v1::GetJobReply job;
  ASSERT_TRUE(stub->GetJob(DeadlineContext(kPatience).get(), {}, &job).ok());
  std::string refusal;
  EXPECT_TRUE(Await([&] {
    v1::RegisterReply me;
    const grpc::Status status = stub->Register(DeadlineContext(kPatience).get(), Registration(job), &me);
    refusal = status.error_message();
    if (!status.ok()) return true;
    v1::GetLeaseRequest request;
    request.set_worker(me.worker());
    request.set_incarnation(me.incarnation());
    request.set_wait_seconds(0.5);
    v1::Lease lease;
    lease.set_state(v1::Lease::WAIT);
    for (int tries = 0; tries < 5 && lease.state() == v1::Lease::WAIT; ++tries) {
      const auto context = DeadlineContext(kPatience);
      context->AddMetadata(kTokenMetadata, me.token());
      EXPECT_TRUE(stub->GetLease(context.get(), request, &lease).ok());
    }
    usleep(200'000);
    return false;
  }));
  EXPECT_THAT(refusal, HasSubstr("made no progress, or vanished, more than once"));
  EXPECT_TRUE(cluster.AwaitStatus("two workers", AllHaveTrained(2, 3000)));
  const absl::StatusOr<v1::JobStatus> status = cluster.Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_TRUE(cluster.AwaitTrained(status->samples() + 5000));
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
}

// Connections that begin TLS and do not go on: a bounded number of them is kept.
TEST(HandshakesTest, ThatDoNotEndAreBounded) {
  const std::string certificates = MakeCertificates("certificates");
  TestCluster cluster(
      {.job = SmallJob("downpour", "workers: 1 epochs: 1000000 checkpoint { every_seconds: 0 }"),
       .certificates = certificates});
  ASSERT_TRUE(cluster.Start(1));
  ASSERT_TRUE(cluster.AwaitTrained(1000));
  const auto files = [&] {
    const std::filesystem::directory_iterator all(absl::StrCat("/proc/", cluster.server(0).pid(), "/fd"));
    return std::distance(begin(all), end(all));
  };
  const auto before = files();
  const std::string hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  std::vector<Fd> handshakes;
  for (int i = 0; i < 2000; ++i) {
    handshakes.emplace_back(Dial(cluster.master()));
    send(handshakes.back().get(), hello.data(), hello.size(), MSG_NOSIGNAL);
  }
  constexpr int kStrangers = 256, kOthers = 20;
  EXPECT_LT(files(), before + kStrangers + kOthers);
  cluster.StartWorkers(1);
  EXPECT_TRUE(cluster.AwaitStatus("2 workers", AllHaveTrained(2, 1000)));
}

// Returns the ClientHello of a client without a certificate.
std::string ClientHello() {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
  BIO* const sent = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), sent);
  EXPECT_LT(SSL_connect(ssl.get()), 0);
  std::string hello(4096, '\0');
  hello.resize(std::max(BIO_read(sent, hello.data(), static_cast<int>(hello.size())), 0));
  return hello;
}

// Completes a handshake without a certificate, upon which the server ends the connection.
void ShakeHands(int fd) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
  const timeval patience = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  SSL_set_fd(ssl.get(), fd);
  char byte;
  if (SSL_connect(ssl.get()) == 1) SSL_read(ssl.get(), &byte, 1);
}

// A neighbor: connections from the address of the workers, a thousand a second, each held while as many
// others come.
class NeighborTest : public testing::TestWithParam<const char*> {
 protected:
  NeighborTest()
      : certificates_(MakeCertificates("certificates")),
        cluster_({.job = SmallJob("downpour", "workers: 1 epochs: 1000000 checkpoint { every_seconds: 0 }"),
                  .certificates = certificates_}) {}
  ~NeighborTest() override { Stop(); }

  void Attack() {
    std::signal(SIGPIPE, SIG_IGN);
    constexpr size_t kHeld = 400;
    constexpr useconds_t kMicroseconds = 1000;
    const std::string kind = GetParam(), hello = ClientHello();
    const std::string bytes =
        kind == "silent" ? "" : hello.substr(0, hello.size() / (kind == "half" ? 2 : 1));
    std::deque<Fd> held;
    while (!stop_) {
      held.emplace_back(Dial(cluster_.master()));
      if (kind == "without_certificate") {
        ShakeHands(held.back().get());
        held.pop_back();
      } else {
        send(held.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      }
      if (held.size() > kHeld) held.pop_front();
      ++connections_;
      usleep(kMicroseconds);
    }
  }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  const std::string certificates_;
  TestCluster cluster_;
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

TEST_P(NeighborTest, WithoutACertificateDoesNotKeepMembersAndOperatorsOut) {
  ASSERT_TRUE(cluster_.Start(1));
  ASSERT_TRUE(cluster_.AwaitTrained(1000));
  thread_ = std::thread([this] { Attack(); });
  ASSERT_TRUE(Await([this] { return connections_ > 1000; }));
  cluster_.StartWorkers(1);
  EXPECT_TRUE(cluster_.AwaitStatus("2 workers", AllHaveTrained(2, 1000)));
  std::vector<std::string> status = {Runfile("cli/catchment"), "status", cluster_.master()};
  for (const std::string& flag : TlsArguments(CertificateOf(certificates_, "operator")))
    status.push_back(flag);
  EXPECT_TRUE(Await([&] { return RunToEnd(status).end.exit_code == 0; }));
  EXPECT_GT(connections_, 1000);
  Stop();
  cluster_.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster_.AwaitOrderlyEnd());
}

INSTANTIATE_TEST_SUITE_P(Connections, NeighborTest,
                         testing::Values("silent", "half", "whole", "without_certificate"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace catchment
