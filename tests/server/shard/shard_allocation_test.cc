// In steady state a block's way through the shard allocates nothing: not for the payload that comes, not for
// the answer, not for what waits in between.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "server/shard/shard.h"
#include "tests/common/allocation/allocation_counter.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 5000, kBlock = 2048;
constexpr int kWarmingRounds = 20;

struct Case {
  std::string name;
  v1::Job job;
  v1::Block::Operation operation;
  uint32_t workers;
  bool pulls;  // after every push, a version that is still to come
  int rounds;
  uint64_t updates;        // of a round, in which every worker pushes once
  uint64_t held_back = 0;  // contributions
};

// Takes answers as a connection does, and forgets them.
struct CountingSink final : AnswerSink {
  void Deliver(Answer answer) override { answers += answer.payload != nullptr || !answer.header.version; }
  uint64_t answers = 0;
};

class Worker {
 public:
  Worker(Shard* shard, uint32_t index)
      : shard_(*shard), index_(index), gradient_(kBlock, 0.25f), sink_(std::make_shared<CountingSink>()) {}

  bool Send(v1::Block::Operation operation, uint64_t sequence, uint64_t version, uint32_t block) {
    const bool pull = operation == v1::Block::PULL;
    const absl::string_view bytes(reinterpret_cast<const char*>(gradient_.data()),
                                  pull ? 0 : shard_.block_range(block).size() * sizeof(float));
    const BlockHeader header{.operation = operation,
                             .sequence = sequence,
                             .version = version,
                             .block = block,
                             .samples = 1,
                             .steps = sequence};
    Request request = MakeRequest(index_, IncarnationOf(index_), header, sink_);
    const PayloadView payload({&bytes, 1}, 0, bytes.size());
    if (!shard_.ReadPayload(payload, header.scale, &request.contribution).ok()) return false;
    const bool ok = shard_.Handle(std::move(request), /*now=*/0, &answers_).ok();
    Deliver(&answers_);
    return ok;
  }

 private:
  Shard& shard_;
  const uint32_t index_;
  const std::vector<float> gradient_;
  const std::shared_ptr<CountingSink> sink_;
  std::vector<Answer> answers_;
};

// With whole tensors, in the same blocks.
ParameterLayout LayoutOf(const Case& c) {
  if (c.job.optimizer().kind() != v1::Optimizer::LAMB) return FlatLayout(kValues, 1, kBlock);
  std::vector<TensorSpec> tensors;
  for (int64_t begin = 0; begin < kValues; begin += kBlock) {
    tensors.push_back({"w" + std::to_string(begin), {std::min<int64_t>(kBlock, kValues - begin)}});
  }
  return *ParameterLayout::Create(tensors, 1, kBlock / 2, Cuts::kBetweenTensors);
}

class ShardAllocationTest : public testing::TestWithParam<Case> {};

TEST_P(ShardAllocationTest, NothingPerBlock) {
  if (!AllocationsAreCounted()) GTEST_SKIP() << "a sanitizer has its own malloc";
  const Case& c = GetParam();
  std::vector<uint32_t> members;
  for (uint32_t w = 0; w < c.workers; ++w) members.push_back(w);
  ShardHarness harness(c.job, LayoutOf(c), 0, members);
  Shard& shard = harness.shard();
  std::vector<Worker> workers;
  for (uint32_t w : members) workers.emplace_back(&shard, w);

  const auto version_after = [&c](uint64_t rounds) {
    return rounds * c.updates - std::min(rounds * c.updates, c.held_back);
  };
  uint64_t failures = 0;
  const auto round = [&](uint64_t number) {
    for (uint32_t block = 0; block < static_cast<uint32_t>(shard.num_blocks()); ++block) {
      for (uint32_t w = 0; w < c.workers; ++w) {
        failures += !workers[w].Send(c.operation, number + 1, version_after(number), block);
        if (c.pulls) failures += !workers[w].Send(v1::Block::PULL, 0, version_after(number + 1), block);
      }
    }
  };
  for (int i = 0; i < kWarmingRounds; ++i) round(i);
  const Allocations before = CountAllocations();
  for (int i = 0; i < c.rounds; ++i) round(kWarmingRounds + i);
  const Allocations counted = CountAllocations() - before;
  EXPECT_EQ(failures, 0u);
  EXPECT_EQ(counted.all, 0u) << "in " << c.rounds * shard.num_blocks() * c.workers << " blocks";
  EXPECT_EQ(shard.version(), version_after(kWarmingRounds + c.rounds)) << "all were applied";
}

v1::Job WithSchedule(v1::Job job) {
  job.mutable_optimizer()->set_kind(v1::Optimizer::ADAM);
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::COSINE);
  job.mutable_optimizer()->mutable_schedule()->set_warmup(0.1f);
  return job;
}

v1::Job WithLamb(v1::Job job) {
  job.mutable_optimizer()->set_kind(v1::Optimizer::LAMB);
  return job;
}

v1::Job WithPullCodec(v1::Job job) {
  job.mutable_compression()->set_pull(v1::Compression::FLOAT16);
  return job;
}

INSTANTIATE_TEST_SUITE_P(
    All, ShardAllocationTest,
    testing::Values(
        Case{"AsynchronousPushPull", GradientJob(false), v1::Block::PUSH_PULL, 3, false, 2000, 3},
        Case{"AsynchronousPushAndPull", GradientJob(false), v1::Block::PUSH, 3, true, 2000, 3},
        Case{"AdamWithSchedule", WithSchedule(GradientJob(false)), v1::Block::PUSH_PULL, 1, false, 2000, 1},
        Case{"PullInFloat16", WithPullCodec(GradientJob(false)), v1::Block::PUSH_PULL, 3, true, 2000, 3},
        Case{"Synchronous", GradientJob(true), v1::Block::PUSH_PULL, 4, false, 1000, 1},
        Case{"SynchronousPushAndPull", GradientJob(true), v1::Block::PUSH, 4, true, 1000, 1},
        Case{"SynchronousLamb", WithLamb(GradientJob(true)), v1::Block::PUSH_PULL, 4, false, 1000, 1},
        Case{"SynchronousGroupOfSixty", GradientJob(true), v1::Block::PUSH_PULL, 60, false, 100, 1},
        Case{"Elastic", ElasticJob(false, 0.1f), v1::Block::EXCHANGE, 3, false, 2000, 3},
        Case{"SynchronousElastic", ElasticJob(true, 0.1f), v1::Block::EXCHANGE, 4, false, 1000, 1},
        Case{"Hybrid", GradientJobWith("consistency { grouped { groups: 2 } }"), v1::Block::PUSH_PULL, 4,
             false, 1000, 2},
        Case{"Softsync", GradientJobWith("consistency { n_softsync { n: 1 } }"), v1::Block::PUSH_PULL, 3,
             false, 1000, 1},
        Case{"Delay", GradientJobWith("consistency { asynchronous { emulated_delay: 5 } }"),
             v1::Block::PUSH_PULL, 2, false, 1000, 2, 5},
        Case{"DelayCompensated", GradientJobWith("compensation { delay_compensated { lambda: 0.04 } }"),
             v1::Block::PUSH_PULL, 3, false, 2000, 3},
        Case{"Bounded", GradientJobWith("consistency { bounded_staleness { bound: 0 } }"),
             v1::Block::PUSH_PULL, 3, false, 1000, 3}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace catchment
