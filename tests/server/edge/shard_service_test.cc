#include "server/edge/shard_service.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/net/snapshot_reader.h"
#include "common/wire/protocol.h"
#include "tests/server/edge/test_servers.h"
#include "tests/server/edge/train_peer.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Two workers, 40 values, blocks of 16, 16 and 8.
class ShardServiceTest : public testing::Test {
 protected:
  ShardServiceTest() : servers_(GradientJob(false), FlatLayout(40, 1, 16)) {
    servers_.SetRosters({MakeRoster(0, {0, 1})});
  }

  // Returns the server's answer to a hello.
  grpc::Status Refusal(const v1::Hello& hello) { return Refusal(hello.SerializeAsString()); }
  grpc::Status Refusal(const std::string& hello) {
    return RawStream(servers_.addresses()[0], &hello).Finish();
  }

  // Returns the status with which the server ends a stream on which it received these bytes as one message.
  grpc::Status EndAfter(const std::string& bytes) {
    Peer peer(servers_, 0);
    peer.Write(bytes);
    return peer.Finish();
  }

  void ExpectWorks(uint32_t worker) {
    Peer peer(servers_, worker);
    v1::Block answer;
    ASSERT_TRUE(peer.Write(PullOf(2)));
    ASSERT_TRUE(peer.Read(&answer));
    EXPECT_EQ(answer.payload().size(), 32u);
  }

  TestServers servers_;
};

TEST_F(ShardServiceTest, AnswersWithWhatGeneratedProtobufCodeReads) {
  Peer peer(servers_, 1);
  v1::Block push = PushOf(1, 2, 8, 0.5f), answer;
  ASSERT_TRUE(peer.Write(push));
  ASSERT_TRUE(peer.Read(&answer));
  EXPECT_EQ(answer.operation(), v1::Block::PUSH_PULL);
  EXPECT_EQ(answer.sequence(), 1u);
  EXPECT_EQ(answer.block(), 2u);
  EXPECT_EQ(answer.version(), 1u);
  EXPECT_EQ(answer.fate(), v1::Block::APPLIED);
  ASSERT_EQ(answer.payload().size(), 32u);
  float last;
  std::memcpy(&last, answer.payload().data() + 28, 4);
  EXPECT_EQ(last, -0.5f);
}

TEST_F(ShardServiceTest, RefusesPeersThatAreNotWorkers) {
  const grpc::Status none = RawStream(servers_.addresses()[0], nullptr).Finish();
  EXPECT_EQ(none.error_code(), grpc::INVALID_ARGUMENT);
  const char kMessage[] =
      "no Hello in the metadata 'catchment-hello-bin': the peer is not a Catchment worker";
  EXPECT_EQ(none.error_message(), kMessage);
  const grpc::Status garbage = Refusal("\xff\xff\xff");
  EXPECT_EQ(garbage.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(garbage.error_message(), kMessage);
}

TEST_F(ShardServiceTest, RefusesHellosByWhatIsWrongWithThem) {
  const auto refusal = [this](grpc::StatusCode code, const auto& change) {
    v1::Hello hello = HelloOf(servers_.layout(), 0);
    change(&hello);
    const grpc::Status status = Refusal(hello);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    return status.error_message();
  };
  // The worker is to give up, or to register again.
  const auto message = [&](const auto& change) { return refusal(grpc::FAILED_PRECONDITION, change); };
  const auto outdated = [&](const auto& change) { return refusal(grpc::ABORTED, change); };
  EXPECT_THAT(message([](v1::Hello* h) { h->set_protocol_version(1); }),
              AllOf(StartsWith(absl::StrCat("the worker speaks protocol version 1, this server ",
                                            kProtocolVersion, " (Catchment ")),
                    HasSubstr("use binaries of one release")));
  EXPECT_THAT(
      outdated([](v1::Hello* h) { h->set_run_id(kRunId - 1); }),
      HasSubstr("the worker belongs to run 0000000000000046, and this server to run 0000000000000047"));
  EXPECT_THAT(outdated([](v1::Hello* h) { h->clear_run_id(); }), HasSubstr("register again"));
  EXPECT_EQ(message([](v1::Hello* h) { h->set_job("other"); }),
            "the worker belongs to job 'other', this server to 'test'");
  EXPECT_EQ(message([](v1::Hello* h) { h->set_fingerprint(h->fingerprint() + 1); }),
            "the worker's model has different tensors than the server's");
  EXPECT_EQ(message([](v1::Hello* h) { h->set_shard(1); }),
            "the worker wants shard 1 of 1, this is shard 0 of 1");
  EXPECT_EQ(message([](v1::Hello* h) { h->set_num_shards(2); }),
            "the worker wants shard 0 of 2, this is shard 0 of 1");
  EXPECT_EQ(outdated([](v1::Hello* h) { h->set_worker(9); }),
            "worker 9, incarnation 10, is not, or no longer, a member of the job; register again");
  EXPECT_EQ(outdated([](v1::Hello* h) { h->set_incarnation(3); }),
            "worker 0, incarnation 3, is not, or no longer, a member of the job; register again");
  const std::string foreign =
      "Hello.token is not that of the registration of worker 0, incarnation 10; register again";
  EXPECT_EQ(outdated([](v1::Hello* h) { h->clear_token(); }), foreign);
  EXPECT_EQ(outdated([](v1::Hello* h) { h->set_token(TestToken(IncarnationOf(1))); }), foreign);
  EXPECT_EQ(outdated([](v1::Hello* h) { h->mutable_token()->push_back(0); }), foreign);
  ExpectWorks(0);
}

TEST_F(ShardServiceTest, EndsAStreamOfGarbageByNameAndOthersDoNotNotice) {
  Peer bystander(servers_, 1);
  const std::string before = servers_.shard(0).Snapshot().state.SerializeAsString();
  std::string truncated = PushOf(1, 0, 16, 1).SerializeAsString();
  truncated.pop_back();
  std::string short_length = PushOf(1, 0, 16, 1).SerializeAsString();
  short_length.resize(10);
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
                                   std::string("\x03"), std::string(1000, '\0'), truncated, short_length}) {
    const grpc::Status status = EndAfter(bytes);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), StartsWith("malformed Block message: "));
  }
  EXPECT_THAT(EndAfter(truncated).error_message(), HasSubstr("a field is longer than the message"));
  EXPECT_EQ(EndAfter("").error_code(), grpc::INVALID_ARGUMENT)
      << "an empty message is a Block without operation";
  EXPECT_EQ(servers_.shard(0).Snapshot().state.SerializeAsString(), before);
  EXPECT_EQ(servers_.shard(0).Weights(), std::vector<float>(40, 0.0f));

  v1::Block answer;
  ASSERT_TRUE(bystander.Write(PushOf(1, 0, 16, 1)));
  ASSERT_TRUE(bystander.Read(&answer));
  EXPECT_EQ(answer.fate(), v1::Block::APPLIED);
}

TEST_F(ShardServiceTest, RefusesPayloadsOfTheWrongSizeByName) {
  EXPECT_EQ(EndAfter(PushOf(1, 0, 15, 1).SerializeAsString()).error_message(),
            "block 0 of shard 0: a FLOAT32 payload of 16 values has 64 bytes, but received 60");
  EXPECT_EQ(EndAfter(PushOf(1, 2, 16, 1).SerializeAsString()).error_message(),
            "block 2 of shard 0: a FLOAT32 payload of 8 values has 32 bytes, but received 64");
  EXPECT_EQ(EndAfter(PushOf(1, 3, 16, 1).SerializeAsString()).error_message(),
            "block 3 of shard 0, which has 3 blocks");
  EXPECT_EQ(EndAfter(PushOf(1, 0, 0, 1).SerializeAsString()).error_message(),
            "block 0 of shard 0 expects 16 values but got 0");
  v1::Block odd = PushOf(1, 0, 16, 1);
  odd.mutable_payload()->pop_back();
  EXPECT_EQ(EndAfter(odd.SerializeAsString()).error_message(),
            "block 0 of shard 0: a FLOAT32 payload of 16 values has 64 bytes, but received 63");
  EXPECT_EQ(servers_.shard(0).Weights(), std::vector<float>(40, 0.0f));
}

TEST_F(ShardServiceTest, EndsTheStreamOfAWorkerThatHasLeft) {
  Peer peer(servers_, 1);
  v1::Block answer;
  ASSERT_TRUE(peer.Write(PullOf(0)));
  ASSERT_TRUE(peer.Read(&answer));
  servers_.SetRosters({MakeRoster(0, {0})});
  ASSERT_TRUE(peer.Write(PushOf(1, 0, 16, 1)));
  EXPECT_FALSE(peer.Read(&answer));
  const grpc::Status status = peer.Finish();
  EXPECT_EQ(status.error_code(), grpc::ABORTED);
  EXPECT_EQ(status.error_message(),
            "worker 1, incarnation 11, is not, or no longer, a member of the job; register again");
}

TEST_F(ShardServiceTest, BytesThatAreNotHttpDisturbNobody) {
  Peer bystander(servers_, 1);
  const std::string& address = servers_.addresses()[0];
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\x5a'),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string(9, '\xff')}) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    char buffer[4096];
    while (recv(fd, buffer, sizeof(buffer), 0) > 0) {
    }
    close(fd);
  }
  v1::Block answer;
  ASSERT_TRUE(bystander.Write(PullOf(0)));
  EXPECT_TRUE(bystander.Read(&answer));
}

TEST(ShardServiceLimitsTest, OversizedMessageEndsItsStreamOnly) {
  TestServers::Options options;
  options.max_message_bytes = 4096;
  TestServers servers(GradientJob(false), FlatLayout(40, 1, 16), options);
  servers.SetRosters({MakeRoster(0, {0, 1})});
  Peer bystander(servers, 1), peer(servers, 0);
  peer.Write(PushOf(1, 0, 100'000, 1));
  v1::Block answer;
  EXPECT_FALSE(peer.Read(&answer));
  EXPECT_FALSE(peer.Finish().ok());
  ASSERT_TRUE(bystander.Write(PushOf(1, 0, 16, 1)));
  ASSERT_TRUE(bystander.Read(&answer));
  EXPECT_EQ(answer.fate(), v1::Block::APPLIED);
}

TEST(ShardServiceGateTest, PeerThatGoesAwayWhileItWaitsLeavesItsContribution) {
  TestServers servers(GradientJob(true), FlatLayout(16, 1, 16));
  servers.SetRosters({MakeRoster(0, {0, 1})});
  {
    Peer gone(servers, 0);
    ASSERT_TRUE(gone.Write(PushOf(1, 0, 16, 1)));
    while (servers.shard(0).Report().bytes_pushed() < 64) std::this_thread::yield();
    gone.Cancel();
    gone.Finish();
  }
  Peer peer(servers, 1);
  v1::Block answer;
  ASSERT_TRUE(peer.Write(PushOf(1, 0, 16, 3)));
  ASSERT_TRUE(peer.Read(&answer));
  EXPECT_EQ(answer.version(), 1u);
  EXPECT_EQ(servers.shard(0).Weights(), std::vector<float>(16, -2.0f));
}

// ------------------------------------------------------------------------------------------- broken streams

class BrokenStreamTest : public ShardServiceTest {
 protected:
  bool IsDisconnected(uint32_t worker) {
    const v1::ShardReport report = servers_.shard(0).Report();
    for (const v1::PushMark& mark : report.marks()) {
      if (mark.worker() == worker) return mark.disconnected();
    }
    return false;
  }
  void AwaitDisconnected(uint32_t worker) {
    while (!IsDisconnected(worker)) std::this_thread::yield();
  }
  // Returns when the server has the peer's stream.
  static void Pull(Peer* peer) {
    v1::Block answer;
    ASSERT_TRUE(peer->Write(PullOf(0)));
    ASSERT_TRUE(peer->Read(&answer));
  }
};

TEST_F(BrokenStreamTest, IsReportedUntilTheWorkerOpensAnother) {
  EXPECT_FALSE(IsDisconnected(0)) << "it has not opened any yet";
  Peer bystander(servers_, 1);
  Pull(&bystander);
  {
    Peer peer(servers_, 0);
    Pull(&peer);
    EXPECT_FALSE(IsDisconnected(0));
  }
  AwaitDisconnected(0);
  EXPECT_FALSE(IsDisconnected(1));
  Peer again(servers_, 0);
  Pull(&again);
  EXPECT_FALSE(IsDisconnected(0));
}

TEST_F(BrokenStreamTest, NewerStreamCountsWhenTheOlderOneEnds) {
  Shard& shard = servers_.shard(0);
  shard.Connected(0, IncarnationOf(0));
  shard.Connected(0, IncarnationOf(0));
  shard.Disconnected(0, IncarnationOf(0), /*by_peer=*/true);
  EXPECT_FALSE(IsDisconnected(0));
  shard.Disconnected(0, IncarnationOf(0), /*by_peer=*/true);
  EXPECT_TRUE(IsDisconnected(0));
}

TEST_F(BrokenStreamTest, StreamThatTheServerEndsIsNotReported) {
  EXPECT_EQ(EndAfter("garbage").error_code(), grpc::INVALID_ARGUMENT);
  servers_.Stop(0);  // waits for the end of all calls
  EXPECT_FALSE(IsDisconnected(0));
}

TEST_F(BrokenStreamTest, NextIncarnationHasNoBrokenStream) {
  {
    Peer peer(servers_, 0);
    Pull(&peer);
  }
  AwaitDisconnected(0);
  v1::Roster roster = MakeRoster(0, {0, 1});
  roster.mutable_members(0)->set_incarnation(IncarnationOf(0) + 100);
  servers_.SetRosters({roster});
  EXPECT_FALSE(IsDisconnected(0));
}

// -------------------------------------------------------------------------------------- snapshots, control

TEST(SnapshotTest, ReaderGetsAllShards) {
  for (int shards : {1, 3}) {
    TestServers servers(GradientJob(false), FlatLayout(200, shards, 16));
    servers.SetRosters({MakeRoster(0, {0})});
    Peer peer(servers, 0);
    v1::Block answer;
    ASSERT_TRUE(peer.Write(PushOf(1, 1, 16, 3)));
    ASSERT_TRUE(peer.Read(&answer));
    std::vector<float> weights(200, 9.0f), expected(200, 0.0f);
    SnapshotReader reader(servers.addresses(), grpc::InsecureChannelCredentials(), kRunId, &servers.layout());
    ASSERT_TRUE(reader.Read(absl::MakeSpan(weights)).ok());
    std::fill_n(expected.begin() + 16, 16, -3.0f);
    EXPECT_EQ(weights, expected) << shards;
  }
}

TEST(SnapshotTest, ReaderOfAnotherModelIsRefused) {
  TestServers servers(GradientJob(false), FlatLayout(200, 1, 16));
  const ParameterLayout other = FlatLayout(201, 1, 16);
  std::vector<float> weights(201);
  const absl::Status status =
      SnapshotReader(servers.addresses(), grpc::InsecureChannelCredentials(), kRunId, &other)
          .Read(absl::MakeSpan(weights));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()),
            "snapshot of server 0 at " + servers.addresses()[0] +
                ": the reader's model has different tensors than the server's");
}

TEST(SnapshotTest, ReaderOfAnotherRunIsRefused) {
  TestServers servers(GradientJob(false), FlatLayout(200, 1, 16));
  std::vector<float> weights(200);
  const absl::Status status =
      SnapshotReader(servers.addresses(), grpc::InsecureChannelCredentials(), kRunId + 1, &servers.layout())
          .Read(absl::MakeSpan(weights));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the reader belongs to run 0000000000000048, and this "
                                                       "server to run 0000000000000047 of job 'test'"));
}

TEST(SnapshotTest, ReaderNamesTheServerThatIsNotThere) {
  TestServers servers(GradientJob(false), FlatLayout(200, 2, 16));
  servers.Stop(1);
  std::vector<float> weights(200);
  const absl::Status status =
      SnapshotReader(servers.addresses(), grpc::InsecureChannelCredentials(), kRunId, &servers.layout())
          .Read(absl::MakeSpan(weights));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), StartsWith("snapshot of server 1 at " + servers.addresses()[1]));
}

TEST(ControlTest, CommandIsCarriedOutAndReportedOn) {
  TestServers servers(GradientJob(false), FlatLayout(40, 1, 16));
  const auto stub =
      v1::ShardService::NewStub(Connect(servers.addresses()[0], grpc::InsecureChannelCredentials()));
  v1::ShardCommand command = TestCommand();
  command.set_generation(4);
  *command.add_rosters() = MakeRoster(0, {5});
  command.set_checkpoint(1);
  v1::ShardReport report;
  const auto context = DeadlineContext(60);
  ASSERT_TRUE(stub->Control(context.get(), command, &report).ok());
  EXPECT_EQ(report.generation(), 4u);
  EXPECT_EQ(report.server_instance(), kServerInstance);
  EXPECT_EQ(report.run_id(), kRunId);
  EXPECT_TRUE(servers.shard(0).IsMember(5, IncarnationOf(5)));
}

TEST(ControlTest, CommandsOfAnotherRunOrForAnotherProcessAreRefused) {
  TestServers servers(GradientJob(false), FlatLayout(40, 1, 16));
  const auto stub =
      v1::ShardService::NewStub(Connect(servers.addresses()[0], grpc::InsecureChannelCredentials()));
  const auto refusal = [&](const auto& change) {
    v1::ShardCommand command = TestCommand();
    command.set_generation(4);
    *command.add_rosters() = MakeRoster(0, {5});
    change(&command);
    v1::ShardReport report;
    return stub->Control(DeadlineContext(60).get(), command, &report);
  };
  const grpc::Status other_run = refusal([](v1::ShardCommand* c) {
    c->mutable_run()->set_id(0xabc);
    c->mutable_run()->set_job("other");
    c->mutable_run()->set_master("there:7000");
  });
  EXPECT_EQ(other_run.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(
      other_run.error_message(),
      "this server belongs to run 0000000000000047 of job 'test' (master at here:7000), and refuses run "
      "0000000000000abc of job 'other' (master at there:7000): give each job servers of its own");
  const grpc::Status other_process = refusal([](v1::ShardCommand* c) { c->set_server_instance(7); });
  EXPECT_EQ(other_process.error_code(), grpc::NOT_FOUND);
  EXPECT_THAT(other_process.error_message(), HasSubstr("the server was restarted"));
  EXPECT_EQ(refusal([](v1::ShardCommand* c) { c->clear_run(); }).error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_FALSE(servers.shard(0).IsMember(5, IncarnationOf(5))) << "nothing of them is carried out";
}

// A shard with a standby: ten blocks of 4 values.
class StandbyAnswersTest : public testing::Test {
 protected:
  StandbyAnswersTest() : servers_(GradientJob(false), FlatLayout(40, 1, 4), OptionsWith(&log_)) {
    servers_.SetRosters({MakeRoster(0, {0})});
  }
  ~StandbyAnswersTest() override { log_.End(); }

  static TestServers::Options OptionsWith(StandbyLog* log) {
    TestServers::Options options;
    options.service.log = log;
    return options;
  }
  void AwaitChanges(uint64_t changes) {
    while (log_.last() < changes) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  StandbyLog log_;
  TestServers servers_;
};

TEST_F(StandbyAnswersTest, LeaveWhenTheStandbyHasTheirChanges) {
  Peer peer(servers_, 0);
  ASSERT_TRUE(peer.Write(PushOf(1, 0, 4, 0.5f)));
  std::atomic<bool> answered = false;
  v1::Block answer;
  std::thread reader([&] {
    EXPECT_TRUE(peer.Read(&answer));
    answered = true;
  });
  AwaitChanges(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // in which a wrong answer would come
  EXPECT_FALSE(answered);
  log_.Acknowledge(log_.last());
  reader.join();
  EXPECT_EQ(answer.version(), 1u);
}

// The log ends while a long answer is on its way, with another behind it that the standby does not have.
TEST(StandbyEndTest, ConnectionEndsOnceTheAnswerHasLeft) {
  constexpr int64_t kValues = 1 << 23;  // more than a connection takes from a server before its peer reads
  StandbyLog log;
  TestServers::Options options;
  options.service.log = &log;
  options.service.shared_memory = false;
  TestServers servers(GradientJob(false), FlatLayout(kValues, 1, kValues), options);
  servers.SetRosters({MakeRoster(0, {0, 1})});
  Peer reader(servers, 0), other(servers, 1);
  const auto await_pulls = [&](int64_t pulls) {
    while (servers.shard(0).Report().bytes_pulled() < pulls * kValues * sizeof(float))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  ASSERT_TRUE(reader.Write(PullOf(0)));
  await_pulls(1);
  ASSERT_TRUE(other.Write(PushOf(1, 0, kValues, 0.5f)));
  while (log.last() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(reader.Write(PullOf(0)));
  await_pulls(3);
  log.End();
  v1::Block answer;
  EXPECT_TRUE(reader.Read(&answer));
  EXPECT_FALSE(reader.Read(&answer));
  EXPECT_EQ(reader.Finish().error_message(), "the server's run has ended");
}

// Nothing is read from a worker whose window is full, so the end of its connection is not noticed by reading.
TEST_F(StandbyAnswersTest, ConnectionWithAFullWindowEndsWithTheLog) {
  Peer peer(servers_, 0);
  for (uint32_t block = 0; block < 10; ++block) ASSERT_TRUE(peer.Write(PushOf(1, block, 4, 0.5f)));
  AwaitChanges(8);
  log_.End();
  const grpc::Status status = peer.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  EXPECT_EQ(status.error_message(), "the server's run has ended");
}

}  // namespace
}  // namespace catchment
