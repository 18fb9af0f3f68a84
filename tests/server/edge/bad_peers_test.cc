// Peers that violate the protocol, over real sockets: each gets an error or is disconnected, another worker
// continues to train, and memory stays bounded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/net/rpc.h"
#include "common/net/snapshot_reader.h"
#include "common/wire/token.h"
#include "tests/server/edge/http2_peer.h"
#include "tests/server/edge/test_servers.h"
#include "tests/server/edge/train_peer.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr char kTrain[] = "/catchment.v1.ShardService/Train";
constexpr char kSnapshot[] = "/catchment.v1.ShardService/Snapshot";
// Values and bytes of a block, and how many blocks there are.
constexpr int64_t kBlock = 1 << 14, kBytes = kBlock * sizeof(float);
constexpr int kBlocks = 64;
// Resident bytes for each byte that is written.
#if defined(__SANITIZE_THREAD__)
constexpr int kResident = 5;  // ThreadSanitizer keeps four bytes of its own for each
#else
constexpr int kResident = 1;
#endif
constexpr double kFloor = 4096;  // bytes per second: a block takes 16 s, and is awaited for 32
constexpr double kWindow = 32;

// In bytes.
int64_t ResidentMemory() {
#ifdef __SANITIZE_ADDRESS__
  return 0;  // what was freed stays in its quarantine
#endif
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Worker 0 is bad, worker 1 is good.
class BadPeersTest : public testing::Test {
 protected:
  BadPeersTest() : servers_(GradientJob(false), FlatLayout(kBlocks * kBlock, 1, kBlock), MakeOptions()) {
    servers_.SetRosters({MakeRoster(0, {0, 1})});
    good_ = std::make_unique<Peer>(servers_, 1);
    hello_ = HelloOf(servers_.layout(), 0).SerializeAsString();
  }

  static TestServers::Options MakeOptions() {
    TestServers::Options options;
    options.max_message_bytes = 4 * kBytes;
    options.service.slowest_bytes_per_second = kFloor;
    return options;
  }

  static std::string PushBytes(uint64_t sequence, uint32_t block) {
    return GrpcMessage(PushOf(sequence, block, kBlock, 1).SerializeAsString());
  }

  // Sweeps as a daemon does. The good worker transfers a block before each sweep: the server may learn late
  // that an answer has left, and a worker whose answers do not leave for a whole window is disconnected.
  void Sweep(double now) {
    v1::Block answer;
    ASSERT_TRUE(good_->Write(PullOf(0)));
    ASSERT_TRUE(good_->Read(&answer));
    servers_.Sweep(now);
  }

  // All blocks of the good worker's next push are applied.
  void ExpectTrains() {
    ++pushes_;
    for (uint32_t block = 0; block < kBlocks; ++block) {
      v1::Block answer;
      ASSERT_TRUE(good_->Write(PushOf(pushes_, block, kBlock, 1)));
      ASSERT_TRUE(good_->Read(&answer));
      ASSERT_EQ(answer.fate(), v1::Block::APPLIED);
    }
  }

  // Pushes the block and takes the answer.
  void Push(Http2Peer* peer, uint32_t stream, uint64_t sequence, uint32_t block) {
    const uint64_t before = peer->Bytes(stream);
    ASSERT_TRUE(peer->Send(stream, PushBytes(sequence, block)));
    ASSERT_TRUE(peer->ReadUntil([&] { return peer->Bytes(stream) >= before + kBytes; }));
  }

  bool AwaitEnd(Http2Peer* peer, uint32_t stream) {
    return peer->ReadUntil([&] { return peer->Ended(stream); });
  }

  TestServers servers_;
  std::unique_ptr<Peer> good_;
  std::string hello_;  // the bad one's
  uint64_t pushes_ = 0;
};

TEST_F(BadPeersTest, WhoStopsInTheMiddleOfABlockIsToldWhyAndCutOff) {
  Http2Peer peer(servers_.addresses()[0], 1 << 30);
  const uint32_t stream = peer.Call(kTrain, hello_);
  Push(&peer, stream, 1, 0);
  const std::string next = PushBytes(1, 1);
  ASSERT_TRUE(peer.Send(stream, next.substr(0, next.size() / 2)));
  Sweep(100);
  ExpectTrains();
  Sweep(100 + kWindow - 1);
  Sweep(100 + kWindow);
  ASSERT_TRUE(AwaitEnd(&peer, stream));
  EXPECT_THAT(peer.Headers(stream), HasSubstr("worker 0, incarnation 10, sends push 1 at 0 KiB/s, "
                                              "slower than the job's faults.slowest_kib_per_second"));
  ExpectTrains();

  // It may come again, and goes on where it was.
  const uint32_t again = peer.Call(kTrain, hello_);
  for (uint32_t block = 1; block < kBlocks; ++block) Push(&peer, again, 1, block);
  EXPECT_EQ(servers_.shard(0).Report().workers(0).applied(), 1u);
}

TEST_F(BadPeersTest, WhoSendsAsFastAsTheFloorOrHasNothingToSendIsLeftAlone) {
  Http2Peer peer(servers_.addresses()[0], 1 << 30);
  const uint32_t stream = peer.Call(kTrain, hello_);
  double now = 100;
  Sweep(now);
  // A block in each window: one less than the floor asks for, which may be on its way.
  for (uint32_t block = 0; block < kBlocks; ++block) {
    Push(&peer, stream, 1, block);
    Sweep(now += kWindow);
  }
  // Less than a window in 2,000 calls, during which the server learns that the last answer has left, however
  // late it runs.
  for (int i = 0; i < 2000; ++i) Sweep(now += kWindow / 2001);
  for (int i = 0; i < 1000; ++i) Sweep(now += kWindow);
  Push(&peer, stream, 2, 0);
  EXPECT_FALSE(peer.Ended(stream));
  ExpectTrains();
}

// An incomplete first block is not noticed; it costs the memory of one block until the membership of the
// worker ends.
TEST_F(BadPeersTest, WhoStopsInTheMiddleOfTheFirstBlockIsEndedWithItsMembership) {
  Http2Peer peer(servers_.addresses()[0]);
  const uint32_t stream = peer.Call(kTrain, hello_);
  ASSERT_TRUE(peer.Send(stream, PushBytes(1, 0).substr(0, kBytes / 2)));
  ExpectTrains();
  servers_.SetRosters({MakeRoster(0, {1})});
  Sweep(100);
  ASSERT_TRUE(AwaitEnd(&peer, stream));
  EXPECT_THAT(peer.Headers(stream),
              HasSubstr("worker 0, incarnation 10, is not, or no longer, a member of the job"));
  ExpectTrains();
}

TEST_F(BadPeersTest, WhoSendsWithoutReadingIsReadFromNoMoreAndCutOff) {
  Http2Peer peer(servers_.addresses()[0], 1000);
  const uint32_t stream = peer.Call(kTrain, hello_);
  const std::string pull = GrpcMessage(PullOf(0).SerializeAsString());
  std::string pulls;
  for (int i = 0; i < 1000; ++i) pulls += pull;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(peer.Send(stream, pulls));
  ExpectTrains();
  const uint64_t own = kBlocks * kBytes;
  EXPECT_LE(servers_.shard(0).Report().bytes_pulled() - own, 16 * kBytes)
      << "few of 10,000 answers were made";
  Sweep(100);
  Sweep(100 + kWindow);
  Sweep(100 + kWindow + 1);
  EXPECT_FALSE(peer.Ended(stream)) << "it may still read why";
  Sweep(100 + kWindow + 20);
  ASSERT_TRUE(AwaitEnd(&peer, stream));
  ExpectTrains();
}

TEST_F(BadPeersTest, WhoReadsSlowlyIsToldWhy) {
  Http2Peer peer(servers_.addresses()[0], 1000);
  const uint32_t stream = peer.Call(kTrain, hello_);
  ASSERT_TRUE(peer.Send(stream, GrpcMessage(PullOf(0).SerializeAsString())));
  ASSERT_TRUE(peer.ReadUntil([&] { return peer.Bytes(stream) == 1000; }));
  Sweep(100);
  Sweep(100 + kWindow);
  ExpectTrains();
  peer.Grant(stream, 2 * kBytes);
  ASSERT_TRUE(AwaitEnd(&peer, stream));
  EXPECT_THAT(peer.Headers(stream), HasSubstr("worker 0, incarnation 10, takes its answers at 0 KiB/s, "
                                              "slower than the job's faults.slowest_kib_per_second"));
}

// Each holds half a block, and each is ended by the next.
TEST_F(BadPeersTest, OfAThousandStreamsOfOneWorkerOneIsLeft) {
  ExpectTrains();
  const int64_t before = ResidentMemory();
  std::vector<std::unique_ptr<Http2Peer>> peers;
  for (int connection = 0; connection < 10; ++connection) {
    peers.push_back(std::make_unique<Http2Peer>(servers_.addresses()[0]));
    Http2Peer& peer = *peers.back();
    for (int i = 0; i < 100; ++i) {
      const uint32_t stream = peer.Call(kTrain, hello_);
      ASSERT_TRUE(peer.Send(stream, PushBytes(1, 0).substr(0, kBytes / 2)) || peer.Ended(stream));
      if (i == 50) ExpectTrains();
    }
  }
  for (int connection = 0; connection < 10; ++connection) {
    const int ended = connection < 9 ? 100 : 99;
    EXPECT_TRUE(peers[connection]->ReadUntil([&] { return peers[connection]->NumEnded() == ended; }));
  }
  EXPECT_THAT(peers[0]->Headers(1), HasSubstr("worker 0, incarnation 10, has opened a newer connection"));
  EXPECT_LT(ResidentMemory() - before, kResident * (int64_t{16} << 20))
      << "a thousand halves of blocks are 32 MiB";
  ExpectTrains();
}

TEST_F(BadPeersTest, OnlySoManySnapshotsAreReadAtATime) {
  ExpectTrains();
  const int64_t before = ResidentMemory();
  v1::SnapshotRequest request;
  request.set_fingerprint(servers_.layout().fingerprint());
  request.set_run_id(kRunId);
  const std::string message = GrpcMessage(request.SerializeAsString());
  Http2Peer peer(servers_.addresses()[0], 1000);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(peer.SendLast(peer.Call(kSnapshot, ""), message));
  ASSERT_TRUE(peer.ReadUntil([&] { return peer.NumEnded() == 92; }));
  EXPECT_THAT(peer.Headers(199), HasSubstr("8 snapshots are being read already; try again later"));
  EXPECT_LT(ResidentMemory() - before, kResident * 20 * kBlocks * kBytes) << "a hundred copies were 400 MiB";
  ExpectTrains();
  // Servers have places of their own.
  std::vector<float> weights(kBlocks * kBlock);
  const auto read = [&](const std::string& token) {
    SnapshotReader reader(servers_.addresses(), grpc::InsecureChannelCredentials(), kRunId,
                          &servers_.layout(), SnapshotReader::kStallSeconds, token);
    return reader.Read(absl::MakeSpan(weights)).code();
  };
  EXPECT_EQ(read(""), absl::StatusCode::kUnavailable);
  EXPECT_EQ(read(TestToken(IncarnationOf(1))), absl::StatusCode::kUnavailable);
  EXPECT_EQ(read(TestToken(kServersIncarnation)), absl::StatusCode::kOk);
  Sweep(100);
  Sweep(100 + kWindow);
  EXPECT_TRUE(peer.ReadUntil([&] { return peer.NumEnded() == 100; })) << "they were not read";
}

// gRPC looks at the size of a message when it has all of it.
TEST_F(BadPeersTest, MessageLargerThanABlockIsCutOff) {
  ExpectTrains();
  const int64_t before = ResidentMemory();
  const std::string more(1 << 20, 'x');
  Http2Peer peer(servers_.addresses()[0]);
  const uint32_t stream = peer.Call(kTrain, hello_);
  bool open = peer.Send(stream, GrpcMessage("x", 4 * static_cast<uint32_t>(kBytes) + 1));
  for (int i = 0; i < 100 && open; ++i) open = peer.Send(stream, more);
  EXPECT_FALSE(open);
  ExpectTrains();
  EXPECT_LT(ResidentMemory() - before, kResident * (int64_t{48} << 20)) << "100 MiB were to be sent";
}

// Bytes after the last one that the message announces are the next message, of which the length is a lie.
TEST_F(BadPeersTest, MessageOfTheLargestSizeThatIsNotABlockIsRefused) {
  Http2Peer peer(servers_.addresses()[0]);
  const uint32_t stream = peer.Call(kTrain, hello_);
  const bool sent = peer.Send(stream, GrpcMessage(std::string(4 * kBytes, '\xff')));
  EXPECT_TRUE(sent || peer.Ended(stream));
  ASSERT_TRUE(AwaitEnd(&peer, stream));
  EXPECT_THAT(peer.Headers(stream), HasSubstr("malformed Block message"));
  ExpectTrains();
}

TEST_F(BadPeersTest, ConnectionsThatSayNothingHarmNobody) {
  std::vector<std::unique_ptr<Http2Peer>> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(std::make_unique<Http2Peer>(servers_.addresses()[0]));
  ExpectTrains();
}

}  // namespace
}  // namespace catchment
