// The learning rate's course, checkpoints, going on from one, reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "server/shard/shard.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

using testing::Each;
using testing::FloatEq;

TEST(ShardTest, LearningRateFollowsTheSamplesApplied) {
  v1::Job job = GradientJob(false, 1);
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::COSINE);
  ShardHarness shard(job, 16, 16, {0});
  shard.SetRosters({MakeRoster(0, {0})}, 100);
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .samples = 50}).ok());
  EXPECT_THAT(shard.shard().Weights(), Each(-1.0f));
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 2, .version = 1, .value = 1, .samples = 50}).ok());
  EXPECT_THAT(shard.shard().Weights(), Each(FloatEq(-1.5f))) << "half the budget is spent: half the rate";
}

// The budget that late contributions took is spent, though no update was made of them; also after a resume.
TEST(ShardTest, LearningRateFollowsTheSamplesOfLateContributionsToo) {
  v1::Job job = GradientJobWith("consistency { synchronous { backup_workers: 1 } }");
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::COSINE);
  ShardHarness shard(job, 16, 16, {0, 1});
  shard.SetRosters({MakeRoster(0, {0, 1})}, 100);
  for (uint32_t worker : {0, 1}) {
    ASSERT_TRUE(shard.Handle({.worker = worker, .value = 1, .samples = 25}).ok());
  }
  EXPECT_EQ(shard.Statistics(1).late(), 1u);
  EXPECT_EQ(shard.shard().Report().samples(), 25u);
  const ShardSnapshot snapshot = shard.shard().Snapshot();
  Shard::Contents contents{
      snapshot.weights, snapshot.states, {snapshot.state.blocks().begin(), snapshot.state.blocks().end()}, 1};
  ShardHarness resumed(job, 16, 16, {}, std::move(contents));
  resumed.SetRosters({MakeRoster(0, {0, 1})}, 100);
  for (ShardHarness* each : {&shard, &resumed}) {
    const uint64_t sequence = each == &shard ? 2 : 1;
    ASSERT_TRUE(
        each->Handle({.worker = 0, .sequence = sequence, .version = 1, .value = 1, .samples = 25}).ok());
    EXPECT_THAT(each->shard().Weights(), Each(FloatEq(-1.5f))) << "half the budget is spent: half the rate";
  }
}

TEST(SynchronousShardTest, CheckpointsAreTakenExactlyAtTheirVersionsWithAllBlocksThere) {
  ShardHarness shard(GradientJob(true), 40, 16, {0, 1});
  for (uint64_t round = 0; round < 10; ++round) {
    // Ahead, at a version that the shard is at already, and ahead again.
    if (round == 0) shard.Announce(3, 3);
    if (round == 6) shard.Announce(6, 6);
    if (round == 7) shard.Announce(9, 9);
    for (uint32_t worker : {0, 1}) {
      // Not in block order.
      for (uint32_t block : {2, 0, 1}) {
        ASSERT_TRUE(
            shard
                .Handle(
                    {.worker = worker, .sequence = round + 1, .version = round, .value = 1, .block = block})
                .ok());
      }
    }
  }
  ASSERT_EQ(shard.snapshots().size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) {
    const ShardSnapshot& snapshot = shard.snapshots()[i];
    const uint64_t version = 3 * (i + 1);
    EXPECT_EQ(snapshot.state.checkpoint(), version);
    ASSERT_EQ(snapshot.state.blocks_size(), 3);
    for (const v1::BlockState& block : snapshot.state.blocks()) EXPECT_EQ(block.version(), version);
    EXPECT_EQ(snapshot.weights, std::vector<float>(40, -static_cast<float>(version)));
    for (const v1::Watermark& watermark : snapshot.state.watermarks()) {
      EXPECT_EQ(watermark.sequence(), version);
      EXPECT_EQ(watermark.settled_steps(), version);
      EXPECT_TRUE(watermark.partial().empty());
    }
    EXPECT_EQ(snapshot.state.samples(), 2 * version);
  }
}

TEST(ShardTest, CheckpointByCommandIsMadeOnce) {
  ShardHarness shard(GradientJob(false), 16, 16, {0});
  shard.shard().Checkpoint(4);
  shard.shard().Checkpoint(4);
  shard.shard().Checkpoint(3);
  ASSERT_EQ(shard.snapshots().size(), 1u);
  EXPECT_EQ(shard.snapshots()[0].state.checkpoint(), 4u);
  shard.shard().Checkpoint(5);
  EXPECT_EQ(shard.snapshots().size(), 2u);
}

v1::Job AdamJob() {
  v1::Job job = GradientJob(false, 0.05f);
  job.mutable_optimizer()->set_kind(v1::Optimizer::ADAM);
  job.mutable_optimizer()->set_beta1(0.9f);
  job.mutable_optimizer()->set_beta2(0.999f);
  job.mutable_optimizer()->set_epsilon(1e-8f);
  return job;
}

void ExpectSame(const ShardSnapshot& snapshot, const ShardSnapshot& expected) {
  EXPECT_EQ(snapshot.weights, expected.weights);
  EXPECT_EQ(snapshot.states, expected.states);
  EXPECT_EQ(snapshot.state_names, expected.state_names);
  for (int b = 0; b < expected.state.blocks_size(); ++b) {
    EXPECT_EQ(snapshot.state.blocks(b).version(), expected.state.blocks(b).version()) << "block " << b;
  }
}

TEST(ShardTest, UpdatesCopyABlockToTheSnapshotsThatWaitForItBeforeTheyChangeIt) {
  std::vector<std::unique_ptr<PendingSnapshot>> begun;
  const ParameterLayout layout = FlatLayout(40, 1, 16);
  Shard::Contents contents;
  contents.weights.assign(40, 0.5f);
  Shard shard(AdamJob(), layout, 0, std::move(contents),
              [&](std::unique_ptr<PendingSnapshot> snapshot) { begun.push_back(std::move(snapshot)); });
  v1::ShardCommand command;
  command.set_generation(1);
  *command.add_rosters() = MakeRoster(0, {0});
  std::vector<Answer> answers;
  shard.SetRosters(command, /*now=*/0, &answers);
  std::vector<uint64_t> pushes(3);
  const auto push = [&](uint32_t block, uint64_t sequence) {
    const BufferPtr values = shard.pool()->Get(shard.block_range(block).size());
    for (int64_t i = 0; i < values->size(); ++i) values->data()[i] = std::sin(i + 3 * sequence);
    const BlockHeader header{.operation = v1::Block::PUSH,
                             .sequence = sequence,
                             .version = pushes[block]++,
                             .block = block,
                             .samples = 1,
                             .steps = sequence};
    Request request = MakeRequest(0, IncarnationOf(0), header, std::make_shared<NamedSink>(""));
    request.contribution.values = values;
    ASSERT_TRUE(shard.Handle(std::move(request), /*now=*/0, &answers).ok());
  };
  std::vector<ShardSnapshot> expected;
  const auto begin = [&] {
    expected.push_back(shard.Snapshot());
    shard.Checkpoint(expected.size());
  };

  for (uint32_t block : {0, 1, 2}) push(block, 1);
  begin();
  push(1, 2);
  begin();
  for (uint32_t block : {0, 2}) push(block, 2);
  for (uint32_t block : {2, 1}) push(block, 3);
  begin();
  begin();
  begun[2].reset();
  push(0, 3);
  ASSERT_EQ(begun.size(), 4u);
  for (size_t i : {3, 0, 1}) {
    SCOPED_TRACE(i);
    ExpectSame(begun[i]->Finish(), expected[i]);
    push(0, pushes[0] + 1);
    push(1, pushes[1] + 1);
    push(2, pushes[2] + 1);
    ExpectSame(begun[i]->Finish(), expected[i]);
  }
  begun.clear();
  // In memory that the others gave back.
  begin();
  push(1, pushes[1] + 1);
  ExpectSame(begun[0]->Finish(), expected[4]);
  begun.clear();  // before the shard ends
}

TEST(ShardTest, ReadersOfWeightsGetThoseOfOneMomentBlockByBlock) {
  ShardHarness shard(GradientJob(false), 40, 16, {0});
  uint64_t pushes = 0;
  const auto push = [&](uint32_t block) {
    const uint64_t version = pushes / 3;
    ASSERT_TRUE(shard.Handle({.sequence = version + 1, .version = version, .value = 1, .block = block}).ok());
    ++pushes;
  };
  const auto read = [&](PendingWeights* weights, int blocks) {
    std::vector<float> values;
    for (int b = 0; b < blocks; ++b) values.push_back(*weights->Next()->data());
    return values;
  };
  const auto first = shard.shard().BeginWeights();
  auto left = shard.shard().BeginWeights();
  for (uint32_t block : {1, 0}) push(block);
  const auto second = shard.shard().BeginWeights();
  EXPECT_EQ(read(left.get(), 1), std::vector<float>({0}));
  push(2);
  left.reset();
  for (uint32_t block : {2, 1, 0}) push(block);
  EXPECT_EQ(read(first.get(), 3), std::vector<float>({0, 0, 0}));
  EXPECT_EQ(read(second.get(), 3), std::vector<float>({-1, -1, 0}));
  EXPECT_EQ(shard.shard().Weights(), std::vector<float>(40, -2.0f));
}

// The last of many shards of a model with more parameters than 32 bits can count.
TEST(ShardTest, SnapshotsAreOfAnyPartOfTheLargestModels) {
  constexpr int64_t kParameters = (int64_t{1} << 33) + 5;
  constexpr int kShards = 9999;
  ShardHarness shard(GradientJob(false), FlatLayout(kParameters, kShards, 65536), kShards - 1, {0});
  const auto last = static_cast<uint32_t>(shard.shard().num_blocks() - 1);
  ASSERT_TRUE(shard.Handle({.value = 2, .block = last}).ok());
  const ShardSnapshot snapshot = shard.shard().Snapshot();
  EXPECT_GT(snapshot.state.begin(), int64_t{1} << 32);
  EXPECT_EQ(snapshot.state.end(), kParameters);
  EXPECT_EQ(shard.shard().block_range(static_cast<int>(last)).end, kParameters);
  EXPECT_EQ(std::ssize(snapshot.weights), snapshot.state.end() - snapshot.state.begin());
  EXPECT_EQ(snapshot.weights.front(), 0);
  EXPECT_EQ(snapshot.weights.back(), -2);
}

TEST(ShardTest, WithoutADirectoryASnapshotHoldsNoValues) {
  std::unique_ptr<PendingSnapshot> begun;
  const ParameterLayout layout = FlatLayout(40, 1, 16);
  Shard::Contents contents;
  contents.weights.assign(40, 0.5f);
  Shard shard(
      AdamJob(), layout, 0, std::move(contents),
      [&](std::unique_ptr<PendingSnapshot> snapshot) { begun = std::move(snapshot); },
      /*keeps_values=*/false);
  shard.Checkpoint(7);
  ASSERT_NE(begun, nullptr);
  const ShardSnapshot& snapshot = begun->Finish();
  EXPECT_EQ(snapshot.state.checkpoint(), 7u);
  EXPECT_EQ(snapshot.state.blocks_size(), 3);
  EXPECT_TRUE(snapshot.weights.empty());
  EXPECT_TRUE(snapshot.states.empty());
  EXPECT_EQ(shard.Snapshot().weights, std::vector<float>(40, 0.5f));
}

TEST(ShardTest, NoneAreTakenThatAreNotAnnounced) {
  ShardHarness shard(GradientJob(false), 16, 16, {0});
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = i + 1, .version = i}).ok());
  }
  EXPECT_TRUE(shard.snapshots().empty());
}

TEST(ShardTest, AnAnnouncementOfALaterOneTakesThePlaceOfWhatIsNotReached) {
  ShardHarness shard(GradientJob(false), 16, 16, {0});
  shard.Announce(50, 50);
  ASSERT_TRUE(shard.Handle({.worker = 0}).ok());
  shard.Announce(1, 0);
  ASSERT_EQ(shard.snapshots().size(), 1u);
  EXPECT_EQ(shard.snapshots()[0].state.checkpoint(), 1u);
  EXPECT_EQ(shard.snapshots()[0].state.blocks(0).version(), 1u);
  for (uint64_t i = 1; i < 60; ++i) {
    ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = i + 1, .version = i}).ok());
  }
  EXPECT_EQ(shard.snapshots().size(), 1u);
}

class RestoreTest : public testing::TestWithParam<v1::Optimizer::Kind> {};

TEST_P(RestoreTest, ShardGoesOnFromASnapshotBitForBit) {
  v1::Job job = GradientJob(false, 0.05f);
  job.mutable_optimizer()->set_kind(GetParam());
  if (GetParam() == v1::Optimizer::SGD) job.mutable_optimizer()->set_momentum(0.9f);
  job.mutable_optimizer()->set_beta1(0.9f);
  job.mutable_optimizer()->set_beta2(0.999f);
  job.mutable_optimizer()->set_epsilon(1e-8f);
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::COSINE);
  job.mutable_optimizer()->mutable_schedule()->set_warmup(0.3f);
  const auto push = [](ShardHarness& shard, uint64_t sequence, uint64_t version) {
    for (uint32_t block : {0, 1, 2}) {
      std::vector<float> gradient(shard.shard().block_range(block).size());
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = std::sin(0.7f * version + 0.3f * i + block);
      ASSERT_TRUE(
          shard
              .HandleValues(
                  {.worker = 0, .sequence = sequence, .version = version, .block = block, .samples = 5},
                  gradient)
              .ok());
    }
  };
  ShardHarness left_alone(job, 40, 16, {0});
  left_alone.SetRosters({MakeRoster(0, {0})}, 100);
  left_alone.Announce(7, 7);
  for (uint64_t i = 0; i < 20; ++i) {
    if (i == 10) left_alone.Announce(14, 14);
    push(left_alone, i + 1, i);
  }

  ASSERT_GE(left_alone.snapshots().size(), 1u);
  const ShardSnapshot& snapshot = left_alone.snapshots()[0];
  ASSERT_EQ(snapshot.state.checkpoint(), 7u);
  Shard::Contents contents{
      snapshot.weights, snapshot.states, {snapshot.state.blocks().begin(), snapshot.state.blocks().end()}, 7};
  ShardHarness restored(job, 40, 16, {}, std::move(contents));
  restored.SetRosters({MakeRoster(0, {0})}, 100);
  restored.Announce(7, 7);
  restored.Announce(14, 14);
  for (uint64_t i = 7; i < 20; ++i) push(restored, i - 6, i);

  EXPECT_EQ(restored.shard().Weights(), left_alone.shard().Weights());
  EXPECT_EQ(restored.shard().Snapshot().states, left_alone.shard().Snapshot().states);
  EXPECT_EQ(restored.shard().version(), 20u);
  EXPECT_EQ(restored.shard().Report().samples(), 100u);
  ASSERT_EQ(restored.snapshots().size(), 1u) << "7 was there already";
  EXPECT_EQ(restored.snapshots()[0].state.checkpoint(), 14u);
  EXPECT_EQ(restored.snapshots()[0].weights, left_alone.snapshots()[1].weights);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, RestoreTest,
                         testing::Values(v1::Optimizer::SGD, v1::Optimizer::ADAGRAD, v1::Optimizer::ADAM),
                         [](const auto& info) { return v1::Optimizer::Kind_Name(info.param); });

TEST(ShardTest, ReportCountsWhatWasMovedAndApplied) {
  ShardHarness shard(GradientJob(false), 32, 16, {0, 1});
  for (uint32_t block : {0, 1}) ASSERT_TRUE(shard.Handle({.worker = 1, .block = block, .samples = 3}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::PULL}).ok());
  const v1::ShardReport report = shard.shard().Report();
  EXPECT_EQ(report.version(), 1u);
  EXPECT_EQ(report.generation(), 1u);
  EXPECT_EQ(report.samples(), 3u);
  EXPECT_EQ(report.bytes_pushed(), 128u);
  EXPECT_EQ(report.bytes_pulled(), 128u + 64u);
  ASSERT_EQ(report.workers_size(), 2);
  EXPECT_EQ(report.workers(1).applied(), 1u);
}

// Finite contributions may add up to weights that are not: the shard says since when, and saves nothing from
// then on.
TEST(ShardTest, WeightsThatAreNotFiniteAreReportedAndNeverSaved) {
  ShardHarness shard(GradientJob(false, /*learning_rate=*/5e19f), 32, 16, {0});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 0x1p62f, .block = 0}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .block = 1}).ok());
  shard.shard().Checkpoint(1);
  EXPECT_EQ(shard.snapshots().size(), 1u);
  EXPECT_EQ(shard.shard().Report().non_finite_version(), 0u);
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 2, .version = 1, .value = 0x1p62f, .block = 0}).ok());
  EXPECT_EQ(shard.shard().Report().non_finite_version(), 2u);
  shard.shard().Checkpoint(2);
  EXPECT_EQ(shard.snapshots().size(), 1u) << "the good one stays the newest";
}

}  // namespace
}  // namespace catchment
