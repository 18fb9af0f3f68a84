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
#include "tests/server/edge/test_servers.h"
#include "tests/server/shard/shard_harness.h"
#include "tests/server/shard/standby_parts.h"

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

// Neither the master, which writes the model, nor the servers, which send their shards, have a copy. Blocks
// of other servers arrive before they are written, up to gRPC's limit (common/net/rpc.cc).
TEST(FinalOutputsMemoryTest, WritesTheModelBlockByBlock) {
  constexpr double kReadAhead = 64 << 20;
  for (const int servers : {1, 2}) {
    const int64_t size = servers == 1 ? kValues : int64_t{1} << 25;
    const ParameterLayout layout = *ParameterLayout::Create(
        {{"first", {1000, 7}}, {"second", {size - 7001}}, {"third", {1}}}, servers, kBlock);
    const v1::Job job = GradientJob(/*synchronous=*/false);
    TestServers shards(job, layout);
    shards.SetRosters({MakeRoster(0, {0})});
    for (int s = 0; s < servers; ++s) {
      for (int b = 0; b < layout.num_blocks(s); ++b) {
        const Range block = layout.block(s, b);
        Request request = MakeRequest(
            0, IncarnationOf(0),
            {.operation = v1::Block::PUSH, .sequence = 1, .block = static_cast<uint32_t>(b), .samples = 1},
            std::make_shared<NamedSink>("worker"));
        request.contribution.values = shards.shard(s).pool()->Get(block.size());
        float* const values = request.contribution.values->data();
        std::iota(values, values + block.size(), static_cast<float>(block.begin));
        std::vector<Answer> answers;
        ASSERT_TRUE(shards.shard(s).Handle(std::move(request), 0, &answers).ok());
      }
    }
    const std::vector<float> weights = shards.Weights();
    ASSERT_NE(weights[kBlock], weights[kBlock + 1]);
    RunOptions run;
    run.job = job;
    run.num_servers = servers;
    run.run_id = kRunId;
    run.token_key = kTestTokenKey;
    FinalOutputs ended;
    ended.servers = shards.addresses();
    ended.has_weights = true;
    const std::string directory = absl::StrCat(std::getenv("TEST_TMPDIR"), "/out-", servers);
    const auto outputs = Outputs::Open(directory);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const Usage usage;
    const absl::Status status =
        WriteFinalOutputs(run, {.credentials = grpc::InsecureChannelCredentials(), .local = &shards.shard(0)},
                          layout, ended, outputs->get());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_LT(usage.MostBytes(), kOthers * static_cast<double>(size) + (servers - 1) * kReadAhead);
    const auto file = SafetensorsFile::Open(directory + "/model.safetensors");
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE((*file)->VerifyChecksums().ok());
    std::vector<float> read(size);
    for (int t = 0; t < 3; ++t) {
      const Range range = layout.tensor(t);
      const std::string& name = layout.tensors()[t].name;
      ASSERT_TRUE((*file)->Read(name, 0, range.size(), read.data() + range.begin).ok()) << name;
    }
    EXPECT_TRUE(read == weights);
  }
}

}  // namespace
}  // namespace catchment
