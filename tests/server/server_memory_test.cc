// The memory of a server for each parameter, as the bytes that its process has asked for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/safetensors.h"
#include "server/host/final_outputs.h"
#include "server/rules/rule.h"
#include "tests/common/allocation/allocation_counter.h"
#include "tests/server/shard_harness.h"
#include "tests/server/standby_parts.h"
#include "tests/server/test_servers.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 1 << 22, kBlock = 1 << 16;
// For everything but vectors of parameters.
constexpr double kOthers = 0.5;
constexpr double kVector = sizeof(float);

// The most bytes in use for each parameter, beside those before.
class Usage {
 public:
  Usage() : before_(BytesInUse()) { ResetMostBytes(); }
  double MostBytes() const { return static_cast<double>(MostBytesInUse() - before_); }
  double Most() const { return MostBytes() / kValues; }

 private:
  const uint64_t before_;
};

class ServerMemoryTest : public testing::TestWithParam<v1::Optimizer::Kind> {
 protected:
  void SetUp() override {
    if (!AllocationsAreCounted()) GTEST_SKIP() << "a sanitizer has its own malloc";
  }

  static v1::Job JobOf(v1::Optimizer::Kind kind) {
    v1::Job job = GradientJob(/*synchronous=*/false);
    job.mutable_optimizer()->set_kind(kind);
    if (kind == v1::Optimizer::SGD) job.mutable_optimizer()->set_momentum(0.9f);
    return job;
  }
};

// The vectors of the shard, and as many in which it is copied for a checkpoint.
TEST_P(ServerMemoryTest, HasTheVectorsOfTheShardTwice) {
  const v1::Job job = JobOf(GetParam());
  const ParameterLayout layout = FlatLayout(kValues, 1, kBlock);
  const double vectors = kVector * (1 + MakeRule(job)->num_states());
  ASSERT_GT(vectors, kVector);
  const Usage usage;
  Shard::Contents contents;
  contents.weights.resize(kValues);
  ShardHost host(job, layout, 0, std::move(contents), std::string(std::getenv("TEST_TMPDIR")));
  EXPECT_GE(usage.Most(), 2 * vectors);
  EXPECT_LT(usage.Most(), 2 * vectors + kOthers);
  const Usage of_checkpoint;
  host.shard()->Checkpoint(1);
  EXPECT_LT(of_checkpoint.Most(), kOthers) << "a checkpoint needs further memory";
}

// The vectors of the copy are freed as they are copied.
TEST_P(ServerMemoryTest, HasThoseOfAStandbysCopyTwice) {
  const v1::Job job = JobOf(GetParam());
  const ParameterLayout layout = FlatLayout(kValues, 1, kBlock);
  Replica replica(job, layout, 0);
  const double vectors = kVector * (1 + MakeRule(job)->num_states());
  {
    StandbyLog log;
    Shard::Contents contents;
    contents.weights.resize(kValues);
    Shard shard(
        job, layout, 0, std::move(contents), [](std::unique_ptr<PendingSnapshot>) {}, false, &log);
    SendImage(&shard, layout, &replica);
  }
  const Usage usage;
  const Shard::Contents restored = replica.TakeContents();
  EXPECT_LT(usage.Most(), vectors + kOthers);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ServerMemoryTest,
                         testing::Values(v1::Optimizer::SGD, v1::Optimizer::ADAMW),
                         [](const auto& info) { return v1::Optimizer::Kind_Name(info.param); });

}  // namespace
}  // namespace catchment
