// In steady state a block's way through the shard allocates nothing: not for the payload that comes, not for
// the answer, not for what waits in between.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/shard.h"
#include "tests/common/allocation/allocation_counter.h"
#include "tests/server/shard_harness.h"

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
    Request request{index_, IncarnationOf(index_), BlockHeader{operation, sequence, version, block, 1},
                    nullptr, sink_};
    if (!shard_.ReadPayload(PayloadView({&bytes, 1}, 0, bytes.size()), &request).ok()) return false;
    const bool ok = shard_.Handle(std::move(request), &answers_).ok();
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

class ShardAllocationTest : public testing::TestWithParam<Case> {};

TEST_P(ShardAllocationTest, NothingPerBlock) {
  if (!AllocationsAreCounted()) GTEST_SKIP() << "a sanitizer has its own malloc";
  const Case& c = GetParam();
  std::vector<uint32_t> members;
  for (uint32_t w = 0; w < c.workers; ++w) members.push_back(w);
  ShardHarness harness(c.job, kValues, kBlock, members);
  Shard& shard = harness.shard();
  std::vector<Worker> workers;
  for (uint32_t w : members) workers.emplace_back(&shard, w);

  const bool synchronous = c.job.algorithm().consistency().groups() == 1;
  uint64_t failures = 0;
  const auto round = [&](uint64_t number) {
    for (uint32_t block = 0; block < static_cast<uint32_t>(shard.num_blocks()); ++block) {
      for (uint32_t w = 0; w < c.workers; ++w) {
        const uint64_t version = synchronous ? number : number * c.workers;
        const uint64_t next = synchronous ? number + 1 : (number + 1) * c.workers;
        failures += !workers[w].Send(c.operation, number + 1, version, block);
        if (c.pulls) failures += !workers[w].Send(v1::Block::PULL, 0, next, block);
      }
    }
  };
  for (int i = 0; i < kWarmingRounds; ++i) round(i);
  const Allocations before = CountAllocations();
  for (int i = 0; i < c.rounds; ++i) round(kWarmingRounds + i);
  const Allocations counted = CountAllocations() - before;
  EXPECT_EQ(failures, 0u);
  EXPECT_EQ(counted.all, 0u) << "in " << c.rounds * shard.num_blocks() * c.workers << " blocks";
  const uint64_t updates = (kWarmingRounds + c.rounds) * (synchronous ? 1 : c.workers);
  EXPECT_EQ(shard.version(), updates) << "all were applied";
}

v1::Job WithSchedule(v1::Job job) {
  job.mutable_optimizer()->set_kind(v1::Optimizer::ADAM);
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::COSINE);
  job.mutable_optimizer()->mutable_schedule()->set_warmup(0.1f);
  return job;
}

v1::Job WithPullCodec(v1::Job job) {
  job.mutable_compression()->set_pull(v1::Compression::FLOAT16);
  return job;
}

INSTANTIATE_TEST_SUITE_P(
    All, ShardAllocationTest,
    testing::Values(
        Case{"AsynchronousPushPull", GradientJob(false), v1::Block::PUSH_PULL, 3, false, 2000},
        Case{"AsynchronousPushAndPull", GradientJob(false), v1::Block::PUSH, 3, true, 2000},
        Case{"AdamWithSchedule", WithSchedule(GradientJob(false)), v1::Block::PUSH_PULL, 1, false, 2000},
        Case{"PullInFloat16", WithPullCodec(GradientJob(false)), v1::Block::PUSH_PULL, 3, true, 2000},
        Case{"Synchronous", GradientJob(true), v1::Block::PUSH_PULL, 4, false, 1000},
        Case{"SynchronousPushAndPull", GradientJob(true), v1::Block::PUSH, 4, true, 1000},
        Case{"SynchronousGroupOfSixty", GradientJob(true), v1::Block::PUSH_PULL, 60, false, 100},
        Case{"Elastic", ElasticJob(false, 0.1f), v1::Block::EXCHANGE, 3, false, 2000},
        Case{"SynchronousElastic", ElasticJob(true, 0.1f), v1::Block::EXCHANGE, 4, false, 1000}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace catchment
