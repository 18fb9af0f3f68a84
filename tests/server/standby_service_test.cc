// A shard's server and its standby over real connections.
#include "server/edge/standby_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "server/edge/listener.h"
#include "server/edge/restore_shard.h"
#include "server/edge/standby_link.h"
#include "tests/server/shard_harness.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr uint64_t kRun = 7;
constexpr int64_t kValues = 40;
constexpr uint32_t kWorker = 0;

// The process that keeps the copy of shard 0 of one.
class StandbyProcess {
 public:
  StandbyProcess(const v1::Job& job, const ParameterLayout& layout, const std::string& address)
      : store_(job, layout, 0), service_(&store_) {
    absl::StatusOr<Listener> listener =
        Listener::Open(address, grpc::InsecureServerCredentials(), {&service_}, {});
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
               Shard::Contents contents)
      : shard_(
            job, layout, 0, std::move(contents), [](std::unique_ptr<PendingSnapshot>) {}, true, &log_) {
    v1::ShardCommand command;
    command.set_generation(1);
    *command.add_rosters() = MakeRoster(0, {kWorker});
    std::vector<Answer> answers;
    shard_.SetRosters(command, 0, &answers);
    link_ =
        std::make_unique<StandbyLink>(&shard_, &layout, &log_, grpc::InsecureChannelCredentials(),
                                      [this](const absl::Status& status) { replaced_.set_value(status); });
    v1::ShardCommand::Standby named;
    named.set_address(standby);
    named.set_epoch(epoch);
    link_->SetStandby(named, kRun);
  }
  ~ShardProcess() {
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
                                     .samples = 1},
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
  StandbyLog& log() { return log_; }
  absl::Status AwaitReplacement() { return replaced_.get_future().get(); }

 private:
  StandbyLog log_;
  Shard shard_;
  uint64_t pushes_ = 0;
  std::promise<absl::Status> replaced_;
  std::unique_ptr<StandbyLink> link_;
};

class StandbyServiceTest : public testing::Test {
 protected:
  void StartStandby(const std::string& address = "127.0.0.1:0") {
    standby_.reset();
    standby_ = std::make_unique<StandbyProcess>(job_, layout_, address);
  }
  std::unique_ptr<ShardProcess> StartShard(uint64_t epoch) {
    Shard::Contents contents;
    contents.weights.assign(kValues, 1.0f);
    return std::make_unique<ShardProcess>(job_, layout_, standby_->address(), epoch, std::move(contents));
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

TEST_F(StandbyServiceTest, ProcessThatIsStartedAgainGetsEverythingThatWasAcknowledged) {
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

TEST_F(StandbyServiceTest, NothingIsAcknowledgedWithoutAStandby) {
  StartStandby();
  std::unique_ptr<ShardProcess> shard = StartShard(/*epoch=*/1);
  const uint64_t change = shard->Push(1);
  // It takes part in the run only later.
  EXPECT_FALSE(shard->log().IsAcknowledged(change));
  standby_->Join(1);
  EXPECT_TRUE(shard->Await(change));
}

TEST_F(StandbyServiceTest, StandbyThatIsStartedAgainGetsAnImage) {
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
TEST_F(StandbyServiceTest, EveryConnectionBeginsWithAWholeImage) {
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

TEST_F(StandbyServiceTest, ProcessThatWasReplacedIsRefused) {
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
TEST_F(StandbyServiceTest, NewStandbyRefusesEarlierEpochsThanTheMasterNames) {
  StartStandby();
  standby_->Join(3);
  std::unique_ptr<ShardProcess> second = StartShard(/*epoch=*/2);
  EXPECT_TRUE(absl::IsFailedPrecondition(second->AwaitReplacement()));
  std::unique_ptr<ShardProcess> third = StartShard(/*epoch=*/3);
  EXPECT_TRUE(third->Await(third->Push(1)));
}

TEST_F(StandbyServiceTest, WithoutACompleteCopyThereIsNothingToRestore) {
  StartStandby();
  standby_->Join(1);
  const absl::Status status = Restore(2).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the standby of shard 0 has no complete copy of it"));
}

// The master is the server of shard 0. Its state comes with the image and with changes, described when it is
// sent.
TEST_F(StandbyServiceTest, MasterIsRestoredWithItsShardAsTheNextEpoch) {
  StartStandby();
  standby_->Join(4);
  std::unique_ptr<ShardProcess> shard = StartShard(/*epoch=*/4);
  std::atomic<int> state = 1;
  bool evaluated = false;
  shard->log().SetState([&](bool whole) {
    std::vector<v1::StandbyPart> parts;
    if (whole || std::exchange(evaluated, false)) parts.emplace_back().set_evaluations("a score");
    parts.emplace_back().set_master(absl::StrCat("state ", state.load()));
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
  EXPECT_EQ(copy->master, "state 5");
  EXPECT_EQ(copy->evaluations, "a score");
  EXPECT_EQ(copy->contents.weights, shard->Weights());
  shard->Push(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(shard->AwaitReplacement()));
}

// A process that restores its shard and reads slowly keeps neither the master nor other streams waiting.
TEST_F(StandbyServiceTest, CopyCanBeChangedWhileItIsSent) {
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

TEST_F(StandbyServiceTest, StateThatIsNotSentYetIsAppendedOnce) {
  StandbyLog log;
  const uint64_t closed = log.AppendState();
  EXPECT_GT(log.AppendState(), closed) << "no change is queued before the log is open";
  log.Open();
  const uint64_t first = log.AppendState();
  EXPECT_EQ(log.AppendState(), first);
  ASSERT_TRUE(log.Next().has_value());
  EXPECT_GT(log.AppendState(), first);
}

TEST_F(StandbyServiceTest, EndOfTheLogAnswersThoseWhoWait) {
  StartStandby();
  std::unique_ptr<ShardProcess> shard = StartShard(/*epoch=*/1);
  const uint64_t change = shard->Push(1);
  std::future<bool> waits = std::async(std::launch::async, [&] { return shard->Await(change); });
  shard->log().End();
  EXPECT_FALSE(waits.get());
  EXPECT_FALSE(shard->Await(change));
}

}  // namespace
}  // namespace catchment
