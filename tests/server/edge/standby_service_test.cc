// A shard's server and its standby over real connections.
#include "server/edge/standby_service.h"

#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/shared_arena.h"
#include "common/net/rpc.h"
#include "common/wire/protocol.h"
#include "proto/standby.grpc.pb.h"
#include "server/edge/listener.h"
#include "server/edge/restore_shard.h"
#include "server/edge/standby_link.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr uint64_t kRun = 7;
constexpr int64_t kValues = 40;
constexpr uint32_t kWorker = 0;

// The process that keeps the copy of shard 0 of one.
class StandbyProcess {
 public:
  StandbyProcess(const v1::Job& job, const ParameterLayout& layout, const std::string& address,
                 int max_message_bytes = 4 << 20)
      : store_(job, layout, 0), service_(&store_) {
    Listener::Options options;
    options.max_message_bytes = max_message_bytes;
    absl::StatusOr<Listener> listener =
        Listener::Open(address, grpc::InsecureServerCredentials(), {&service_}, options);
    CHECK(listener.ok()) << listener.status();
    listener_.emplace(*std::move(listener));
  }
  // Lets it take part in the run.
  void Join(uint64_t lowest_epoch) { store_.Join(kRun, lowest_epoch); }
  const std::string& address() const { return listener_->address(); }
  StandbyStore& store() { return store_; }

 private:
  StandbyStore store_;
  StandbyService service_;
  std::optional<Listener> listener_;
};

// The process that has the shard.
class ShardProcess {
 public:
  ShardProcess(const v1::Job& job, const ParameterLayout& layout, const std::string& standby, uint64_t epoch,
               Shard::Contents contents, bool shares_memory)
      : arena_(shares_memory ? SharedArena::Reserve("buffers", kValues, "standbys") : nullptr),
        shard_(
            job, layout, 0, std::move(contents), [](std::unique_ptr<PendingSnapshot>) {}, true, &log_) {
    if (arena_ != nullptr) shard_.pool()->UseMemory(arena_);
    v1::ShardCommand command;
    command.set_generation(1);
    *command.add_rosters() = MakeRoster(0, {kWorker});
    std::vector<Answer> answers;
    shard_.SetRosters(command, 0, &answers);
    link_ = std::make_unique<StandbyLink>(
        &shard_, &layout, &log_, arena_.get(),
        [this] {
          return ConnectionThreads{connections_.queue(), &pipes_};
        },
        grpc::InsecureChannelCredentials(),
        [this](const absl::Status& status) { replaced_.set_value(status); });
    v1::ShardCommand::Standby named;
    named.set_address(standby);
    named.set_epoch(epoch);
    link_->SetStandby(named, kRun);
  }
  ~ShardProcess() { EndLink(); }
  void EndLink() {
    log_.End();
    link_.reset();
  }

  // Pushes a value to all blocks; returns the last change.
  uint64_t Push(float value) {
    ++pushes_;
    for (int b = 0; b < shard_.num_blocks(); ++b) {
      Request request = MakeRequest(kWorker, IncarnationOf(kWorker),
                                    {.operation = v1::Block::PUSH,
                                     .sequence = pushes_,
                                     .version = 0,
                                     .block = static_cast<uint32_t>(b),
                                     .samples = 1,
                                     .steps = pushes_},
                                    std::make_shared<NamedSink>("worker"));
      request.contribution.values = shard_.pool()->Get(shard_.block_range(b).size());
      std::fill_n(request.contribution.values->data(), request.contribution.values->size(), value);
      std::vector<Answer> answers;
      CHECK(shard_.Handle(std::move(request), 0, &answers).ok());
    }
    log_.Flush();
    return log_.last();
  }

  // Returns true when the standby has the change, false if the log has ended before.
  bool Await(uint64_t change) {
    auto acknowledged = std::make_shared<std::promise<bool>>();
    std::future<bool> result = acknowledged->get_future();
    switch (log_.Await(change, [acknowledged](bool ok) { acknowledged->set_value(ok); })) {
      case StandbyLog::Wait::kAcknowledged:
        return true;
      case StandbyLog::Wait::kLater:
        return result.get();
      case StandbyLog::Wait::kNever:
        return false;
    }
    return false;
  }

  std::vector<float> Weights() const { return shard_.Weights(); }
  // Frees the buffers that are not used, as the sweeper does.
  void Trim() {
    for (int i = 0; i < 2; ++i) shard_.pool()->Trim();
  }
  StandbyLog& log() { return log_; }
  absl::Status AwaitReplacement() { return replaced_.get_future().get(); }

 private:
  StandbyLog log_;
  const std::shared_ptr<SharedArena> arena_;  // null: no memory is shared
  Shard shard_;
  uint64_t pushes_ = 0;
  std::promise<absl::Status> replaced_;
  PipeThread pipes_{"pipes"};
  CompletionThread connections_{std::make_unique<grpc::CompletionQueue>(), "connections"};
  std::unique_ptr<StandbyLink> link_;
};

// The parameter: whether the standby reads vectors in the server's memory.
class StandbyServiceTest : public testing::TestWithParam<bool> {
 protected:
  void StartStandby(const std::string& address = "127.0.0.1:0", int max_message_bytes = 4 << 20) {
    standby_.reset();
    standby_ = std::make_unique<StandbyProcess>(job_, layout_, address, max_message_bytes);
  }
  std::unique_ptr<ShardProcess> StartShard(uint64_t epoch) {
    Shard::Contents contents;
    contents.weights.assign(kValues, 1.0f);
    return std::make_unique<ShardProcess>(job_, layout_, standby_->address(), epoch, std::move(contents),
                                          GetParam());
  }
  absl::StatusOr<RestoredCopy> Restore(uint64_t epoch) {
    const v1::StandbyHello hello = MakeStandbyHello(layout_, /*shard=*/0, kRun, epoch);
    return RestoreShard(standby_->address(), grpc::InsecureChannelCredentials(), hello, job_, layout_,
                        /*seconds=*/0, clock_);
  }

  const v1::Job job_ = GradientJob(/*synchronous=*/false);
  const ParameterLayout layout_ = FlatLayout(kValues, 1, 16);
  const SteadyClock clock_;
  std::unique_ptr<StandbyProcess> standby_;
};

TEST_P(StandbyServiceTest, ProcessThatIsStartedAgainGetsEverythingThatWasAcknowledged) {
  StartStandby();
  standby_->Join(1);
  std::unique_ptr<ShardProcess> shard = StartShard(/*epoch=*/1);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(shard->Await(shard->Push(0.25f)));
  const std::vector<float> weights = shard->Weights();
  shard.reset();
  const absl::StatusOr<RestoredCopy> copy = Restore(/*epoch=*/2);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(copy->contents.weights, weights);
  EXPECT_EQ(copy->contents.blocks[0].version(), 5u);
}

// The shard's process may end its link long before it ends itself.
TEST_P(StandbyServiceTest, CopyOutlivesTheLinkAndTheBuffers) {
  StartStandby();
  standby_->Join(1);
  std::unique_ptr<ShardProcess> shard = StartShard(/*epoch=*/1);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(shard->Await(shard->Push(0.25f)));
  const std::vector<float> weights = shard->Weights();
  shard->EndLink();
  for (int i = 0; i < 20; ++i) {
    shard->Push(0.5f);
    shard->Trim();
  }
  EXPECT_EQ(Restore(/*epoch=*/2)->contents.weights, weights);
  shard.reset();
  EXPECT_EQ(Restore(/*epoch=*/3)->contents.weights, weights);
}

// A part of the copy that refers to the shard's buffers never shows other values, whatever happens to the
// connection.
TEST_P(StandbyServiceTest, BlocksOfTheCopyHaveTheWeightsOfTheirVersions) {
  StartStandby();
  standby_->Join(1);
  std::unique_ptr<ShardProcess> shard = StartShard(/*epoch=*/1);
  ASSERT_TRUE(shard->Await(shard->Push(0.25f)));
  std::vector<float> expected = {1.0f, shard->Weights()[0]};  // by version
  for (int i = 0; i < 200; ++i) {
    // The shard's stream is replaced, and it connects again.
    if (i % 40 == 20) {
      ASSERT_TRUE(standby_->store().Admit(MakeStandbyHello(layout_, 0, kRun, /*epoch=*/1)).ok());
    }
    const uint64_t change = shard->Push(0.25f);
    expected.push_back(shard->Weights()[0]);
    if (i % 40 == 39) {
      ASSERT_TRUE(shard->Await(change));
    }
    shard->Trim();
    // The shard goes on for a while before it connects again.
    if (i % 40 >= 20) absl::SleepFor(absl::Milliseconds(2));
    std::vector<float> vector;
    standby_->store().Export([&](const v1::StandbyPart& part) {
      if (part.has_vector()) {
        vector.resize(part.vector().size() / sizeof(float));
        std::memcpy(vector.data(), part.vector().data(), part.vector().size());
      } else if (part.has_block()) {
        EXPECT_THAT(vector, testing::Each(expected[part.block().state().version()]));
      }
      return true;
    });
  }
}

TEST_P(StandbyServiceTest, NothingIsAcknowledgedWithoutAStandby) {
  StartStandby();
  std::unique_ptr<ShardProcess> shard = StartShard(/*epoch=*/1);
  const uint64_t change = shard->Push(1);
  // It takes part in the run only later.
  EXPECT_FALSE(shard->log().IsAcknowledged(change));
  standby_->Join(1);
  EXPECT_TRUE(shard->Await(change));
}

TEST_P(StandbyServiceTest, StandbyThatIsStartedAgainGetsAnImage) {
  StartStandby();
  standby_->Join(1);
  std::unique_ptr<ShardProcess> shard = StartShard(/*epoch=*/1);
  ASSERT_TRUE(shard->Await(shard->Push(0.5f)));
  StartStandby(std::string(standby_->address()));
  EXPECT_TRUE(absl::IsUnavailable(Restore(2).status())) << "it does not take part in the run yet";
  standby_->Join(1);
  ASSERT_TRUE(shard->Await(shard->Push(0.5f)));
  const std::vector<float> weights = shard->Weights();
  const absl::StatusOr<RestoredCopy> copy = Restore(2);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(copy->contents.weights, weights);
}

// The standby's admission and the completion of the call's opening arrive in either order.
TEST_P(StandbyServiceTest, EveryConnectionBeginsWithAWholeImage) {
  StartStandby();
  standby_->Join(1);
  std::unique_ptr<ShardProcess> shard = StartShard(/*epoch=*/1);
  for (int i = 0; i < 40; ++i) {
    shard = nullptr;
    shard = StartShard(/*epoch=*/1);
    ASSERT_TRUE(shard->Await(shard->Push(0.5f)));
    int ledgers = 0;
    standby_->store().Export([&](const v1::StandbyPart& part) {
      ledgers += part.has_ledger() ? 1 : 0;
      return true;
    });
    ASSERT_EQ(ledgers, 1);
  }
}

TEST_P(StandbyServiceTest, ProcessThatWasReplacedIsRefused) {
  StartStandby();
  standby_->Join(1);
  std::unique_ptr<ShardProcess> first = StartShard(/*epoch=*/1);
  ASSERT_TRUE(first->Await(first->Push(1)));
  ASSERT_TRUE(Restore(/*epoch=*/2).ok());
  const uint64_t unanswered = first->Push(1);
  const absl::Status replaced = first->AwaitReplacement();
  EXPECT_TRUE(absl::IsFailedPrecondition(replaced)) << replaced;
  EXPECT_THAT(std::string(replaced.message()), HasSubstr("another process has taken over shard 0"));
  EXPECT_FALSE(first->log().IsAcknowledged(unanswered));
  EXPECT_TRUE(absl::IsFailedPrecondition(Restore(/*epoch=*/1).status()));
}

// The standby was started again, and knows from the master that a process of a later epoch has the shard.
TEST_P(StandbyServiceTest, NewStandbyRefusesEarlierEpochsThanTheMasterNames) {
  StartStandby();
  standby_->Join(3);
  std::unique_ptr<ShardProcess> second = StartShard(/*epoch=*/2);
  EXPECT_TRUE(absl::IsFailedPrecondition(second->AwaitReplacement()));
  std::unique_ptr<ShardProcess> third = StartShard(/*epoch=*/3);
  EXPECT_TRUE(third->Await(third->Push(1)));
}

TEST_P(StandbyServiceTest, WithoutACompleteCopyThereIsNothingToRestore) {
  StartStandby();
  standby_->Join(1);
  const absl::Status status = Restore(2).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the standby of shard 0 has no complete copy of it"));
}

// The master is the server of shard 0. Its state comes with the image and with changes, described when it is
// sent, and may be longer than a message.
TEST_P(StandbyServiceTest, MasterIsRestoredWithItsShardAsTheNextEpoch) {
  StartStandby();
  standby_->Join(4);
  std::unique_ptr<ShardProcess> shard = StartShard(/*epoch=*/4);
  std::atomic<int> state = 1;
  bool evaluated = true;  // also if the image has been sent before SetState
  const std::string much(9 << 20, '-');
  shard->log().SetState([&](bool whole) {
    std::vector<v1::StandbyPart> parts;
    if (whole || std::exchange(evaluated, false)) parts.emplace_back().set_evaluations(much + "a score");
    parts.emplace_back().set_master(absl::StrCat(much, "state ", state.load()));
    return parts;
  });
  ASSERT_TRUE(shard->Await(shard->Push(1)));
  for (state = 2; state <= 5; ++state) {
    const uint64_t change = shard->log().AppendState();
    shard->log().Flush();
    ASSERT_TRUE(shard->Await(change));
  }
  const absl::StatusOr<RestoredCopy> copy = Restore(/*epoch=*/0);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(copy->epoch, 5u);
  EXPECT_TRUE(copy->master == much + "state 5");
  EXPECT_TRUE(copy->evaluations == much + "a score");
  EXPECT_EQ(copy->contents.weights, shard->Weights());
  shard->Push(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(shard->AwaitReplacement()));
}

// Collects the pauses that a link announces.
class Pauses final : public google::LogSink {
 public:
  Pauses() { google::AddLogSink(this); }
  ~Pauses() override { google::RemoveLogSink(this); }

  void send(google::LogSeverity, const char*, const char*, int, const tm*, const char* message,
            size_t size) override {
    static constexpr absl::string_view kBefore = "trying again in ";
    const absl::string_view text(message, size);
    const size_t found = text.find(kBefore);
    double pause = 0;
    if (found == text.npos) return;
    const absl::string_view rest = text.substr(found + kBefore.size());
    ASSERT_TRUE(absl::SimpleAtod(rest.substr(0, rest.find(' ')), &pause)) << text;
    MutexLock lock(&mu_);
    pauses_.push_back(pause);
    changed_.Notify();
  }
  std::vector<double> Await(size_t count) {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [&] { return pauses_.size() >= count; });
    return pauses_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<double> pauses_ ABSL_GUARDED_BY(mu_);
};

TEST_P(StandbyServiceTest, PausesGrowWhileAStandbyAdmitsTheStreamAndRefusesTheImage) {
  StartStandby("127.0.0.1:0", /*max_message_bytes=*/32);
  standby_->Join(1);
  Pauses pauses;
  const std::unique_ptr<ShardProcess> shard = StartShard(/*epoch=*/1);
  shard->Push(1);
  const std::vector<double> seen = pauses.Await(4);
  for (size_t i = 1; i < seen.size(); ++i) EXPECT_GT(seen[i], seen[i - 1]);
}

// A process that restores its shard and reads slowly keeps neither the master nor other streams waiting.
TEST_P(StandbyServiceTest, CopyCanBeChangedWhileItIsSent) {
  StartStandby();
  standby_->Join(1);
  std::unique_ptr<ShardProcess> shard = StartShard(/*epoch=*/1);
  ASSERT_TRUE(shard->Await(shard->Push(1)));
  int parts = 0;
  standby_->store().Export([&](const v1::StandbyPart&) {
    standby_->Join(1);
    EXPECT_TRUE(++parts != 2 || shard->Await(shard->Push(1)));
    return true;
  });
  EXPECT_GT(parts, 2);
}

TEST_P(StandbyServiceTest, StateThatIsNotSentYetIsAppendedOnce) {
  StandbyLog log;
  const uint64_t closed = log.AppendState();
  EXPECT_GT(log.AppendState(), closed) << "no change is queued before the log is open";
  log.Open();
  const uint64_t first = log.AppendState();
  EXPECT_EQ(log.AppendState(), first);
  ASSERT_TRUE(log.Next().has_value());
  EXPECT_GT(log.AppendState(), first);
}

TEST_P(StandbyServiceTest, EndOfTheLogAnswersThoseWhoWait) {
  StartStandby();
  std::unique_ptr<ShardProcess> shard = StartShard(/*epoch=*/1);
  const uint64_t change = shard->Push(1);
  std::future<bool> waits = std::async(std::launch::async, [&] { return shard->Await(change); });
  shard->log().End();
  EXPECT_FALSE(waits.get());
  EXPECT_FALSE(shard->Await(change));
}

INSTANTIATE_TEST_SUITE_P(Transports, StandbyServiceTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "shared" : "sent"; });

// A standby that keeps what it receives, and acknowledges nothing by itself.
class RecordingStandby final : public v1::StandbyService::Service {
 public:
  grpc::Status Replicate(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::StandbyAcknowledgement, v1::StandbyPart>* stream) override {
    v1::StandbyHello hello;
    const auto found = context->client_metadata().find(kStandbyHelloKey);
    CHECK(hello.ParseFromArray(found->second.data(), static_cast<int>(found->second.size())));
    v1::StandbyAcknowledgement first;
    first.set_reads_shared_memory(true);
    stream->Write(first);
    MutexLock lock(&mu_);
    memory_ = *MappedArena::Open(hello.shared_memory(), kValues);
    stream_ = stream;
    for (v1::StandbyPart part; Read(stream, &part);) {
      parts_.push_back(part);
      changed_.Notify();
    }
    stream_ = nullptr;
    return grpc::Status::OK;
  }

  // Returns the first part, after `from` others, that the condition is true for.
  template <typename Condition>
  v1::StandbyPart Await(const Condition& condition, size_t from = 0) {
    MutexLock lock(&mu_);
    std::optional<v1::StandbyPart> found;
    changed_.Wait(&mu_, [&] {
      for (size_t i = from; i < parts_.size() && !found; ++i) {
        if (condition(parts_[i])) found = parts_[i];
      }
      return found.has_value();
    });
    return *found;
  }
  void Acknowledge(uint64_t number, const std::vector<uint64_t>& returned = {}) {
    v1::StandbyAcknowledgement acknowledgement;
    acknowledgement.set_number(number);
    acknowledgement.mutable_returned()->Assign(returned.begin(), returned.end());
    MutexLock lock(&mu_);
    stream_->Write(acknowledgement);
  }
  size_t parts() const {
    MutexLock lock(&mu_);
    return parts_.size();
  }
  const MappedArena& memory() const {
    MutexLock lock(&mu_);
    return *memory_;
  }

 private:
  // Reads without the lock.
  bool Read(grpc::ServerReaderWriter<v1::StandbyAcknowledgement, v1::StandbyPart>* stream,
            v1::StandbyPart* part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    mu_.Unlock();
    const bool read = stream->Read(part);
    mu_.Lock();
    return read;
  }

  mutable Mutex mu_;
  CondVar changed_;
  std::unique_ptr<MappedArena> memory_ ABSL_GUARDED_BY(mu_);
  grpc::ServerReaderWriter<v1::StandbyAcknowledgement, v1::StandbyPart>* stream_ ABSL_GUARDED_BY(mu_) =
      nullptr;
  std::vector<v1::StandbyPart> parts_ ABSL_GUARDED_BY(mu_);
};

// They are the standby's copy, which no later change may overwrite.
TEST(SharedVectorsTest, StayInPlaceUntilTheStandbyReturnsThem) {
  RecordingStandby standby;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&standby);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const ParameterLayout layout = FlatLayout(kValues, 1, kValues);
  Shard::Contents contents;
  contents.weights.assign(kValues, 1.0f);
  {
    ShardProcess shard(GradientJob(/*synchronous=*/false), layout, absl::StrCat("127.0.0.1:", port),
                       /*epoch=*/1, std::move(contents), /*shares_memory=*/true);
    standby.Acknowledge(standby.Await([](const auto& part) { return part.complete(); }).number());
    std::vector<std::pair<v1::StandbyPart, float>> changes;  // with the weights after each
    for (int i = 0; i < 20; ++i) {
      const size_t from = standby.parts();
      shard.Push(0.25f);
      const v1::StandbyPart change = standby.Await([](const auto& part) { return part.has_block(); }, from);
      ASSERT_EQ(change.shared_vectors_size(), 1) << change.ShortDebugString();
      changes.emplace_back(change, shard.Weights()[0]);
    }
    for (const auto& [change, weight] : changes) {
      const v1::SharedVector& shared = change.shared_vectors(0);
      ASSERT_EQ(shared.bytes(), kValues * sizeof(float));
      float value = 0;
      std::memcpy(&value, standby.memory().At(shared.offset(), shared.bytes()), sizeof(value));
      EXPECT_EQ(value, weight) << "change " << change.number();
      EXPECT_EQ(standby.memory().Counter(shared.offset() - kGenerationBefore), shared.generation());
    }
    const uint64_t last = changes.back().first.number();
    std::set<uint64_t> places;
    for (const auto& [change, weight] : changes) places.insert(change.shared_vectors(0).offset());
    EXPECT_EQ(places.size(), changes.size());
    standby.Acknowledge(last);
    ASSERT_TRUE(shard.Await(last));
    shard.Push(0.25f);
    const v1::StandbyPart kept = standby.Await([&](const auto& part) { return part.number() > last; });
    EXPECT_FALSE(places.contains(kept.shared_vectors(0).offset())) << "an acknowledgement returns nothing";
    standby.Acknowledge(kept.number(), {places.begin(), places.end()});
    ASSERT_TRUE(shard.Await(kept.number()));
    shard.Push(0.25f);
    const v1::StandbyPart next =
        standby.Await([&](const auto& part) { return part.number() > kept.number(); });
    EXPECT_TRUE(places.contains(next.shared_vectors(0).offset())) << "their memory is used again";
  }
  server->Shutdown();
}

// Opens a stream to a standby, offers it the memory and sends it a change; returns how the stream ends.
absl::Status EndOfStream(const std::string& standby, const ParameterLayout& layout,
                         const v1::SharedMemory* offer, const v1::SharedVector& vector) {
  v1::StandbyHello hello = MakeStandbyHello(layout, /*shard=*/0, kRun, /*epoch=*/1);
  if (offer != nullptr) *hello.mutable_shared_memory() = *offer;
  grpc::ClientContext context;
  context.AddMetadata(kStandbyHelloKey, hello.SerializeAsString());
  const auto stub =
      v1::StandbyService::NewStub(grpc::CreateChannel(standby, grpc::InsecureChannelCredentials()));
  const auto stream = stub->Replicate(&context);
  v1::StandbyAcknowledgement first;
  EXPECT_TRUE(stream->Read(&first));
  EXPECT_EQ(first.reads_shared_memory(), offer != nullptr && IsOfThisMachine(*offer));
  v1::StandbyPart part;
  *part.add_shared_vectors() = vector;
  stream->Write(part);
  while (stream->Read(&first)) continue;
  return FromGrpc(stream->Finish());
}

TEST(SharedVectorsTest, AreRefusedOutsideOfTheMemoryAndAfterTheyWereReplaced) {
  const ParameterLayout layout = FlatLayout(kValues, 1, kValues);
  StandbyProcess standby(GradientJob(/*synchronous=*/false), layout, "127.0.0.1:0");
  standby.Join(1);
  const std::shared_ptr<SharedArena> arena = SharedArena::Reserve("buffers", kValues, "standbys");
  BufferPool pool(kValues);
  pool.UseMemory(arena);
  const BufferPtr buffer = pool.Get(kValues);
  const v1::SharedMemory offer = arena->Offer();
  v1::SharedVector vector;
  vector.set_offset(*arena->OffsetOf(buffer->data()));
  vector.set_bytes(buffer->bytes());
  vector.set_generation(*buffer->generation());
  const auto end = [&](const v1::SharedMemory* memory, const v1::SharedVector& of) {
    return std::string(EndOfStream(standby.address(), layout, memory, of).message());
  };
  const char* const outside = "is not in the server's shared memory";
  EXPECT_THAT(end(&offer, vector), testing::Not(HasSubstr(outside))) << "it is read; there is no image yet";
  const char* const unread = "which this standby does not read";
  EXPECT_THAT(end(nullptr, vector), HasSubstr(unread));
  v1::SharedMemory elsewhere = offer;
  elsewhere.set_boot_id("another machine");
  EXPECT_THAT(end(&elsewhere, vector), HasSubstr(unread));
  v1::SharedVector wrong = vector;
  wrong.set_offset(offer.bytes() - 4);
  EXPECT_THAT(end(&offer, wrong), HasSubstr(outside));
  wrong.set_offset(UINT64_MAX - 3);
  EXPECT_THAT(end(&offer, wrong), HasSubstr(outside));
  wrong = vector;
  wrong.set_bytes(offer.bytes());
  EXPECT_THAT(end(&offer, wrong), HasSubstr(outside));
  wrong.set_offset(4);
  EXPECT_THAT(end(&offer, wrong), HasSubstr(outside)) << "there is no counter before it";
  wrong = vector;
  wrong.set_generation(vector.generation() + 1);
  EXPECT_THAT(end(&offer, wrong), HasSubstr("has replaced values before they were read"));
}

}  // namespace
}  // namespace catchment
