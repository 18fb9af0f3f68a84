// The copy of a shard that its standby keeps has the bits of the shard, for every preset, and a shard that is
// restored from it continues as the first one would have.
#include "server/shard/replica.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/job/presets.h"
#include "server/shard/standby_log.h"
#include "tests/conformance/jobs.h"
#include "tests/server/shard/shard_harness.h"
#include "tests/server/shard/standby_parts.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 40;
constexpr int64_t kBlockSize = 16;
constexpr uint32_t kWorkers = 4;
constexpr char kClosedLoop[] = "closed_loop";  // besides the presets

// A shard with workers that push random values in turns.
class Workload {
 public:
  Workload(const v1::Job& job, uint64_t seed)
      : job_(job), layout_(FlatLayout(kValues, 1, kBlockSize)), random_(seed) {
    Shard::Contents contents;
    for (int64_t i = 0; i < kValues; ++i) contents.weights.push_back(0.01f * static_cast<float>(i));
    Begin(std::move(contents));
  }

  // Each worker pushes once, in an order of its own. `bad`: the first one's is not finite.
  void Round(bool bad) {
    ++sequence_;
    std::vector<uint32_t> order;
    for (uint32_t w = 0; w < kWorkers; ++w)
      order.insert(order.begin() + static_cast<int64_t>(random_.Below(order.size() + 1)), w);
    for (const uint32_t w : order) {
      for (uint32_t b = 0; b < static_cast<uint32_t>(shard_->num_blocks()); ++b)
        Push(w, b, bad && w == order[0]);
    }
  }

  // Each worker sends its last push again, as when the connection broke before the answer came. Returns the
  // bytes of the answers.
  std::string ResendAll() {
    answers_.clear();
    for (uint32_t w = 0; w < kWorkers; ++w) {
      for (uint32_t b = 0; b < static_cast<uint32_t>(shard_->num_blocks()); ++b) Send(w, b);
    }
    return answers_;
  }

  // Sends what the shard has logged to its standby.
  void Replicate() {
    while (const std::optional<StandbyLog::Change> change = log_->Next()) SendChange(*change, replica_.get());
  }

  // Continues with a shard that is restored from the standby; `hops`: the number of standbys that the copy
  // passes.
  void Restore(int hops) {
    for (; hops > 1; --hops) {
      auto next = std::make_unique<Replica>(job_, layout_, 0);
      next->BeginStream();
      replica_->Export([&](const v1::StandbyPart& part) {
        SendPart(part, next.get());
        return true;
      });
      replica_ = std::move(next);
    }
    Begin(replica_->TakeContents());
  }

  ShardSnapshot Snapshot() const { return shard_->Snapshot(); }
  v1::ShardReport Report() const { return shard_->Report(); }

 private:
  // A worker's last push of a block.
  struct Last {
    uint64_t version = 0;
    std::vector<float> values;
  };
  struct Sink final : AnswerSink {
    Sink(Workload* workload, uint32_t worker) : workload(*workload), worker(worker) {}
    void Deliver(Answer answer) override {
      workload.versions_[worker][answer.header.block] = answer.header.version;
      if (answer.payload == nullptr) return;
      workload.answers_.append(reinterpret_cast<const char*>(answer.payload->data()),
                               answer.payload->bytes());
    }
    Workload& workload;
    const uint32_t worker;
  };

  void Begin(Shard::Contents contents) {
    log_ = std::make_unique<StandbyLog>();
    shard_ = std::make_unique<Shard>(
        job_, layout_, 0, std::move(contents), [](std::unique_ptr<PendingSnapshot>) {}, true, log_.get());
    replica_ = std::make_unique<Replica>(job_, layout_, 0);
    SendImage(shard_.get(), layout_, replica_.get());
    v1::ShardCommand command;
    command.set_generation(1);
    *command.add_rosters() = MakeRoster(0, {0, 1, 2, 3});
    std::vector<Answer> answers;
    shard_->SetRosters(command, /*now=*/0, &answers);
    Deliver(&answers);
  }

  void Push(uint32_t worker, uint32_t block, bool bad) {
    Last& last = last_[worker][block];
    last.version = versions_[worker][block];
    last.values.resize(shard_->block_range(static_cast<int>(block)).size());
    for (float& value : last.values) value = 1e-6f * static_cast<float>(random_.Below(1000000)) - 0.5f;
    if (bad) last.values[0] = std::numeric_limits<float>::quiet_NaN();
    Send(worker, block);
  }

  void Send(uint32_t worker, uint32_t block) {
    const Last& last = last_[worker][block];
    const bool elastic = job_.algorithm().contribution().has_elastic();
    Request request = MakeRequest(worker, IncarnationOf(worker),
                                  {.operation = elastic ? v1::Block::EXCHANGE : v1::Block::PUSH_PULL,
                                   .sequence = sequence_,
                                   .version = last.version,
                                   .block = block,
                                   .samples = 1 + worker,
                                   .steps = sequence_},
                                  std::make_shared<Sink>(this, worker));
    request.contribution.values = shard_->pool()->Get(static_cast<int64_t>(last.values.size()));
    std::copy(last.values.begin(), last.values.end(), request.contribution.values->data());
    request.contribution.finite = std::isfinite(last.values[0]);
    std::vector<Answer> answers;
    const absl::Status status = shard_->Handle(std::move(request), /*now=*/0, &answers);
    ASSERT_TRUE(status.ok()) << status;
    Deliver(&answers);
  }

  const v1::Job job_;
  const ParameterLayout layout_;
  Random random_;
  uint64_t sequence_ = 0;
  uint64_t versions_[kWorkers][3] = {};
  Last last_[kWorkers][3];
  std::string answers_;  // payloads
  std::unique_ptr<StandbyLog> log_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<Replica> replica_;
};

void ExpectSame(const ShardSnapshot& a, const ShardSnapshot& b, bool with_statistics) {
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.states, b.states);
  ASSERT_EQ(a.state.blocks_size(), b.state.blocks_size());
  for (int i = 0; i < a.state.blocks_size(); ++i)
    EXPECT_EQ(a.state.blocks(i).ShortDebugString(), b.state.blocks(i).ShortDebugString());
  ASSERT_EQ(a.state.watermarks_size(), b.state.watermarks_size());
  for (int i = 0; i < a.state.watermarks_size(); ++i) {
    EXPECT_EQ(a.state.watermarks(i).ShortDebugString(), b.state.watermarks(i).ShortDebugString());
    if (!with_statistics) continue;
    EXPECT_EQ(a.state.workers(i).ShortDebugString(), b.state.workers(i).ShortDebugString());
  }
}

class ReplicaTest : public testing::TestWithParam<std::string> {
 protected:
  v1::Job Job() const {
    if (GetParam() != kClosedLoop) return PresetJob(GetParam(), kWorkers);
    return PresetJob("staleness_aware", kWorkers, "algorithm { compensation { closed_loop_momentum {} } }");
  }
};

TEST_P(ReplicaTest, HasTheBitsOfTheShard) {
  Workload workload(Job(), 1);
  for (int round = 0; round < 12; ++round) {
    workload.Round(/*bad=*/round == 5);
    if (HasFatalFailure()) return;
    workload.Replicate();
    const ShardSnapshot before = workload.Snapshot();
    workload.Restore(/*hops=*/1 + round % 3);
    ExpectSame(before, workload.Snapshot(), /*with_statistics=*/true);
    if (HasFailure()) return;
  }
}

TEST_P(ReplicaTest, RestoredShardContinuesAsTheFirstWould) {
  const v1::Job job = Job();
  Workload undisturbed(job, 2), restored(job, 2);
  for (int round = 0; round < 20; ++round) {
    undisturbed.Round(/*bad=*/round == 3);
    restored.Round(/*bad=*/round == 3);
    if (HasFatalFailure()) return;
    restored.Replicate();
    if (round % 4 == 2) {
      restored.Restore(/*hops=*/2);
      EXPECT_TRUE(undisturbed.ResendAll() == restored.ResendAll()) << "the answers differ";
      restored.Replicate();
    }
    ExpectSame(undisturbed.Snapshot(), restored.Snapshot(), /*with_statistics=*/false);
    if (HasFailure()) return;
  }
  EXPECT_EQ(undisturbed.Report().bytes_pushed(), restored.Report().bytes_pushed());
  EXPECT_GT(undisturbed.Report().version(), 0u);
}

std::vector<std::string> Names() {
  std::vector<std::string> names = PresetNames();
  names.push_back(kClosedLoop);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Presets, ReplicaTest, testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

TEST(ReplicaPartsTest, RefusesPartsThatDoNotFit) {
  const ParameterLayout layout = FlatLayout(kValues, 1, kBlockSize);
  const v1::Job job = GradientJob(/*synchronous=*/false);
  Replica replica(job, layout, 0);
  v1::StandbyPart change;
  change.mutable_block()->set_block(0);
  EXPECT_FALSE(replica.Add(change).ok()) << "no image has come";
  EXPECT_FALSE(replica.Add(v1::StandbyPart()).ok());
  v1::StandbyPart end;
  end.set_complete(true);
  EXPECT_FALSE(replica.Add(end).ok());
  v1::StandbyPart begin;
  begin.mutable_image();
  ASSERT_TRUE(replica.Add(begin).ok());
  EXPECT_FALSE(replica.Add(end).ok()) << "the blocks are missing";
  change.mutable_block()->set_block(1);
  EXPECT_FALSE(replica.Add(change).ok()) << "block 0 is missing";
  change.mutable_block()->set_block(0);
  change.mutable_block()->set_has_values(true);
  EXPECT_FALSE(replica.Add(change).ok()) << "the vectors are missing";
  change.mutable_block()->set_has_values(false);
  EXPECT_FALSE(replica.Add(change).ok()) << "a block of an image has values";
  v1::StandbyPart ledger;
  ledger.mutable_ledger()->add_done(3);
  EXPECT_FALSE(replica.Add(ledger).ok()) << "there are 3 blocks";
  EXPECT_FALSE(replica.complete());
}

// Without the ledgers a shard that is restored would apply pushes twice.
TEST(ReplicaPartsTest, RefusesBlocksBeforeAllLedgers) {
  const ParameterLayout layout = FlatLayout(kValues, 1, /*block_size=*/kValues);
  const v1::Job job = GradientJob(/*synchronous=*/false);
  Shard::Contents contents;
  contents.weights.assign(kValues, 3.0f);
  StandbyLog log;
  Shard shard(
      job, layout, 0, std::move(contents), [](std::unique_ptr<PendingSnapshot>) {}, true, &log);
  v1::ShardCommand command;
  command.set_generation(1);
  *command.add_rosters() = MakeRoster(0, {0, 1});
  std::vector<Answer> answers;
  shard.SetRosters(command, /*now=*/0, &answers);
  const Shard::Image image = shard.BeginImage();
  ASSERT_EQ(image.ledgers.size(), 2u);
  Replica replica(job, layout, 0);
  replica.BeginStream();
  ASSERT_TRUE(replica.Add(image.begin).ok());
  ASSERT_TRUE(replica.Add(image.ledgers[0]).ok());
  EXPECT_FALSE(replica.Add(image.ledgers[0]).ok()) << "the same worker's";
  SendVector(std::vector<float>(kValues).data(), kValues, &replica);
  EXPECT_FALSE(replica.Add(image.blocks[0].part).ok());
  ASSERT_TRUE(replica.Add(image.ledgers[1]).ok());
  EXPECT_FALSE(replica.Add(image.ledgers[1]).ok());
  EXPECT_TRUE(replica.Add(image.blocks[0].part).ok());
}

// An image that breaks off leaves the one before it.
TEST(ReplicaPartsTest, KeepsTheLastCompleteImage) {
  const ParameterLayout layout = FlatLayout(kValues, 1, kBlockSize);
  const v1::Job job = GradientJob(/*synchronous=*/false);
  Shard::Contents contents;
  contents.weights.assign(kValues, 3.0f);
  StandbyLog log;
  Shard shard(
      job, layout, 0, std::move(contents), [](std::unique_ptr<PendingSnapshot>) {}, true, &log);
  Replica replica(job, layout, 0);
  SendImage(&shard, layout, &replica);
  ASSERT_TRUE(replica.complete());
  replica.BeginStream();
  v1::StandbyPart begin;
  begin.mutable_image();
  ASSERT_TRUE(replica.Add(begin).ok());
  SendVector(std::vector<float>(kBlockSize, 9.0f).data(), kBlockSize, &replica);
  replica.BeginStream();
  EXPECT_EQ(replica.TakeContents().weights, std::vector<float>(kValues, 3.0f));
}

// A state of the master that breaks off leaves the one before it.
TEST(ReplicaPartsTest, KeepsTheLastCompleteState) {
  const ParameterLayout layout = FlatLayout(kValues, 1, kBlockSize);
  const v1::Job job = GradientJob(/*synchronous=*/false);
  Shard::Contents contents;
  contents.weights.assign(kValues, 3.0f);
  StandbyLog log;
  Shard shard(
      job, layout, 0, std::move(contents), [](std::unique_ptr<PendingSnapshot>) {}, true, &log);
  Replica replica(job, layout, 0);
  SendImage(&shard, layout, &replica);
  const std::string first(5 << 20, 'a'), second(4 << 20, 'b');
  v1::StandbyPart state;
  state.set_number(7);
  state.set_master(first);
  int parts = 0;
  EXPECT_TRUE(SendInParts(state, [&](const v1::StandbyPart& part) {
    EXPECT_LT(part.ByteSizeLong(), 4 << 20);
    EXPECT_NE(replica.number(), 7u);
    SendPart(part, &replica);
    return ++parts > 0;
  }));
  EXPECT_GT(parts, 1);
  EXPECT_EQ(replica.number(), 7u);
  EXPECT_EQ(replica.master(), first);
  state.set_number(8);
  state.set_master(second);
  v1::StandbyPart begin;
  EXPECT_FALSE(SendInParts(state, [&](const v1::StandbyPart& part) {
    SendPart(part, &replica);
    begin = part;
    return false;
  }));
  EXPECT_TRUE(begin.continues());
  EXPECT_EQ(replica.number(), 7u);
  EXPECT_EQ(replica.master(), first);
  v1::StandbyPart other;
  other.set_evaluations("a score");
  EXPECT_FALSE(replica.Add(other).ok()) << "within another state";
  // Another connection begins anew.
  SendImage(&shard, layout, &replica);
  EXPECT_TRUE(SendInParts(state, [&](const v1::StandbyPart& part) {
    SendPart(part, &replica);
    return true;
  }));
  EXPECT_EQ(replica.number(), 8u);
  EXPECT_EQ(replica.master(), second);
}

}  // namespace
}  // namespace catchment
