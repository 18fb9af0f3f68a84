// Peers that share memory with a server, by the rules and against them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/base/shared_arena.h"
#include "common/wire/protocol.h"
#include "tests/server/edge/test_servers.h"
#include "tests/server/edge/train_peer.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr uint64_t kBlockBytes = 16 * sizeof(float);

// A worker that shares memory by the rules, or against them. The shard is one block of 16 values. The
// parameter: whether the worker moves to the pipes that the server offers.
class SharedMemoryTest : public testing::TestWithParam<bool> {
 protected:
  // A stream whose Hello offers `offer`.
  class Sharer : public RawStream {
   public:
    Sharer(const TestServers& servers, uint32_t worker, const v1::SharedMemory& offer)
        : RawStream(servers.addresses()[0],
                    &static_cast<const std::string&>(Hello(servers, worker, offer).SerializeAsString())) {}

   private:
    static v1::Hello Hello(const TestServers& servers, uint32_t worker, const v1::SharedMemory& offer) {
      v1::Hello hello = HelloOf(servers.layout(), worker);
      *hello.mutable_shared_memory() = offer;
      return hello;
    }
  };

  SharedMemoryTest()
      : servers_(GradientJob(false), FlatLayout(16, 1, 16)),
        arena_(*SharedArena::Create("test", 1 << 20)),
        counters_(new (arena_->allocate(sizeof(SharedCounters), 64)) SharedCounters),
        gradient_(16, 1.0f, arena_.get()) {
    servers_.SetRosters({MakeRoster(0, {0, 1})});
  }

  uint64_t OffsetOf(const void* memory) const { return *arena_->OffsetOf(memory); }

  // Maps the memory that the server offers.
  std::unique_ptr<MappedArena> ReadOffer(RawStream* stream) {
    v1::Block block;
    EXPECT_TRUE(stream->Read(&block));
    EXPECT_EQ(block.operation(), v1::Block::SHARE);
    v1::SharedMemory offer;
    EXPECT_TRUE(offer.ParseFromString(block.payload()));
    auto mapped = MappedArena::Open(offer, 0);
    EXPECT_TRUE(mapped.ok()) << mapped.status();
    if (GetParam()) stream->MoveToPipes();
    return mapped.ok() ? *std::move(mapped) : nullptr;
  }
  v1::Block Share(uint64_t counters) const {
    v1::Block share;
    share.set_operation(v1::Block::SHARE);
    share.set_shared_offset(counters);
    return share;
  }
  v1::Block Share() const { return Share(OffsetOf(counters_)); }
  // A push of gradient_.
  v1::Block Push(uint64_t sequence) const {
    v1::Block push = PushOf(sequence, 0, 0, 0);
    push.set_shared_bytes(kBlockBytes);
    push.set_shared_offset(OffsetOf(gradient_.data()));
    push.set_shared_generation(counters_->generation);
    return push;
  }
  // Returns the status with which the server ends a stream on which it received these blocks.
  grpc::Status EndAfter(const std::vector<v1::Block>& blocks) {
    Sharer peer(servers_, 0, arena_->Offer());
    ReadOffer(&peer);
    for (const v1::Block& block : blocks) peer.Write(block);
    return peer.Finish();
  }
  float Weight() { return servers_.Weights()[0]; }

  TestServers servers_;
  const std::shared_ptr<SharedArena> arena_;
  SharedCounters* const counters_;
  std::pmr::vector<float> gradient_;
};

TEST_P(SharedMemoryTest, PayloadsStayInTheMemoryOfTheirSenders) {
  Sharer peer(servers_, 0, arena_->Offer());
  const auto of_server = ReadOffer(&peer);
  ASSERT_TRUE(peer.Write(Share()));
  for (int i = 1; i <= 40; ++i) {
    ASSERT_TRUE(peer.Write(Push(i)));
    v1::Block answer;
    ASSERT_TRUE(peer.Read(&answer));
    EXPECT_EQ(answer.fate(), v1::Block::APPLIED);
    EXPECT_EQ(answer.payload(), "");
    ASSERT_EQ(answer.shared_bytes(), kBlockBytes);
    float weight;
    std::memcpy(&weight, of_server->At(answer.shared_offset(), kBlockBytes), sizeof(weight));
    EXPECT_EQ(weight, -static_cast<float>(i));
    EXPECT_EQ(of_server->Counter(answer.shared_offset() - kGenerationBefore), answer.shared_generation());
    counters_->answers_read = i;
  }
}

TEST_P(SharedMemoryTest, AnswersComeInMessagesAgainWhenTheWorkerReadsNone) {
  Sharer peer(servers_, 0, arena_->Offer());
  const auto of_server = ReadOffer(&peer);
  ASSERT_TRUE(peer.Write(Share()));
  std::vector<v1::Block> lent;
  v1::Block answer;
  for (int i = 1; i <= 30; ++i) {
    ASSERT_TRUE(peer.Write(Push(i)));
    ASSERT_TRUE(peer.Read(&answer));
    if (answer.shared_bytes() > 0) lent.push_back(answer);
  }
  EXPECT_EQ(answer.payload().size(), kBlockBytes);
  ASSERT_GT(lent.size(), 0u);
  ASSERT_LT(lent.size(), 30u);
  // Buffers that the worker has not counted are unchanged.
  for (const v1::Block& block : lent) {
    float weight;
    std::memcpy(&weight, of_server->At(block.shared_offset(), kBlockBytes), sizeof(weight));
    EXPECT_EQ(weight, -static_cast<float>(block.sequence()));
  }
}

TEST_P(SharedMemoryTest, ReuseOfABufferShowsInItsGeneration) {
  std::unique_ptr<MappedArena> of_server;
  v1::Block first;
  {
    Sharer peer(servers_, 0, arena_->Offer());
    of_server = ReadOffer(&peer);
    ASSERT_TRUE(peer.Write(Share()));
    ASSERT_TRUE(peer.Write(Push(1)));
    ASSERT_TRUE(peer.Read(&first));
  }
  // The stream has ended, and its buffers are used by another one.
  bool reused = false;
  Peer other(servers_, 1);
  for (int i = 1; i <= 1000 && !reused; ++i) {
    v1::Block answer;
    ASSERT_TRUE(other.Write(PushOf(i, 0, 16, 1)));
    ASSERT_TRUE(other.Read(&answer));
    reused = of_server->Counter(first.shared_offset() - kGenerationBefore) != first.shared_generation();
  }
  EXPECT_TRUE(reused);
}

TEST_P(SharedMemoryTest, PushThatTheWorkerHasGivenUpIsNotApplied) {
  const v1::Block push = Push(1);
  ++counters_->generation;
  const grpc::Status status = EndAfter({Share(), push});
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("given up"));
  EXPECT_EQ(Weight(), 0.0f);
}

TEST_P(SharedMemoryTest, ValuesThatAreNotFiniteAreNotApplied) {
  gradient_[7] = std::numeric_limits<float>::quiet_NaN();
  Sharer peer(servers_, 0, arena_->Offer());
  ReadOffer(&peer);
  ASSERT_TRUE(peer.Write(Share()));
  ASSERT_TRUE(peer.Write(Push(1)));
  v1::Block answer;
  ASSERT_TRUE(peer.Read(&answer));
  EXPECT_EQ(answer.fate(), v1::Block::NON_FINITE);
  EXPECT_EQ(Weight(), 0.0f);
}

TEST_P(SharedMemoryTest, PlacesOutsideOfTheMemoryEndTheStreamWithTheReason) {
  const auto moved = [this](uint64_t offset, uint64_t bytes) {
    v1::Block push = Push(1);
    push.set_shared_offset(offset);
    push.set_shared_bytes(bytes);
    return EndAfter({Share(), push});
  };
  for (const uint64_t offset : {(uint64_t{1} << 20) - kBlockBytes + 1, uint64_t{1} << 40, UINT64_MAX - 3}) {
    const grpc::Status status = moved(offset, kBlockBytes);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("is outside of the worker's shared memory"));
  }
  EXPECT_THAT(moved(0, UINT64_MAX).error_message(), HasSubstr("is outside"));
  EXPECT_EQ(moved(OffsetOf(gradient_.data()), kBlockBytes - 4).error_message(),
            "block 0 of shard 0: a FLOAT32 payload of 16 values has 64 bytes, but received 60");
  for (const uint64_t counters : {(uint64_t{1} << 20) - 8, UINT64_MAX - 7, OffsetOf(counters_) + 4}) {
    const grpc::Status status = EndAfter({Share(counters)});
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("the counters at"));
  }
  EXPECT_EQ(Weight(), 0.0f);
}

TEST_P(SharedMemoryTest, MemoryThatWasNotOfferedOrAgreedOnIsNotRead) {
  EXPECT_THAT(EndAfter({Push(1)}).error_message(), HasSubstr("before SHARE"));
  Peer without(servers_, 0);
  without.Write(Share());
  EXPECT_THAT(without.Finish().error_message(), HasSubstr("without an offer"));
  Peer inline_only(servers_, 0);
  inline_only.Write(Push(1));
  EXPECT_THAT(inline_only.Finish().error_message(), HasSubstr("before SHARE"));
  EXPECT_EQ(Weight(), 0.0f);
}

TEST_P(SharedMemoryTest, OffersThatCannotBeUsedLeavePayloadsInMessages) {
  v1::SharedMemory elsewhere = arena_->Offer();
  elsewhere.set_boot_id("another machine");
  v1::SharedMemory wrong = arena_->Offer();
  wrong.mutable_nonce()->front() ^= 1;
  uint64_t sequence = 0;
  for (const v1::SharedMemory& offer : {elsewhere, wrong, v1::SharedMemory()}) {
    Sharer peer(servers_, 0, offer);
    v1::Block answer;
    ASSERT_TRUE(peer.Write(PushOf(++sequence, 0, 16, 1)));
    ASSERT_TRUE(peer.Read(&answer));
    EXPECT_EQ(answer.operation(), v1::Block::PUSH_PULL);
    EXPECT_EQ(answer.payload().size(), kBlockBytes);
  }
}

TEST_P(SharedMemoryTest, MemoryThatIsFreedWhileTheServerReadsEndsNothing) {
  Sharer peer(servers_, 0, arena_->Offer());
  ReadOffer(&peer);
  ASSERT_TRUE(peer.Write(Share()));
  const v1::Block push = Push(1);
  gradient_ = std::pmr::vector<float>(arena_.get());
  ASSERT_TRUE(peer.Write(push));
  v1::Block answer;
  ASSERT_TRUE(peer.Read(&answer));
  EXPECT_EQ(answer.fate(), v1::Block::APPLIED);
}

TEST_P(SharedMemoryTest, ServerThatSharesNoMemoryOffersNone) {
  TestServers::Options options;
  options.service.shared_memory = false;
  TestServers servers(GradientJob(false), FlatLayout(16, 1, 16), options);
  servers.SetRosters({MakeRoster(0, {0, 1})});
  Sharer peer(servers, 0, arena_->Offer());
  v1::Block answer;
  ASSERT_TRUE(peer.Write(PullOf(0)));
  ASSERT_TRUE(peer.Read(&answer));
  EXPECT_EQ(answer.payload().size(), kBlockBytes);
}

INSTANTIATE_TEST_SUITE_P(Messages, SharedMemoryTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "in_pipes" : "on_the_stream"; });

// A worker that has moved to the pipes.
class PipeTest : public SharedMemoryTest {
 protected:
  // The worker's next stream works.
  void ExpectNextStream() {
    Sharer peer(servers_, 0, arena_->Offer());
    ReadOffer(&peer);
    v1::Block answer;
    ASSERT_TRUE(peer.Write(PullOf(0)));
    ASSERT_TRUE(peer.Read(&answer));
    EXPECT_EQ(answer.payload().size(), kBlockBytes);
  }
};

TEST_P(PipeTest, MessagesThatViolateTheProtocolEndTheStream) {
  for (const char* const bytes : {"\xff\xff\xff\xff", "\1\0\0\0\377"}) {
    Sharer peer(servers_, 0, arena_->Offer());
    ReadOffer(&peer);
    peer.WriteToPipe(std::string(bytes, bytes[0] == 1 ? 5 : 4));
    v1::Block answer;
    EXPECT_FALSE(peer.Read(&answer));
    peer.Finish();
  }
  ExpectNextStream();
}

TEST_P(PipeTest, MessageOnTheStreamEndsIt) {
  Sharer peer(servers_, 0, arena_->Offer());
  ReadOffer(&peer);
  EXPECT_TRUE(peer.WriteToStream(PullOf(0).SerializeAsString()));
  v1::Block answer;
  EXPECT_FALSE(peer.Read(&answer));
  EXPECT_EQ(peer.Finish().error_code(), grpc::CANCELLED);
  ExpectNextStream();
}

// The worker stops reading, and is lost.
TEST_P(PipeTest, StreamEndsWhileAnswersWaitForRoom) {
  {
    Sharer peer(servers_, 0, arena_->Offer());
    ReadOffer(&peer);
    // Answers without shared memory fill the pipe; so do the requests that the server does not read then.
    const std::string pull = PullOf(0).SerializeAsString();
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(peer.Write(pull));
  }
  ExpectNextStream();
}

INSTANTIATE_TEST_SUITE_P(Messages, PipeTest, testing::Values(true),
                         [](const auto&) { return std::string("in_pipes"); });

}  // namespace
}  // namespace catchment
