#include "server/host/shard_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/shard_file.h"
#include "common/job/data_sources.h"
#include "common/job/model_shapes.h"
#include "tests/conformance/jobs.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

using testing::Each;

std::string Directory(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

ParameterLayout LayoutOf(const v1::Job& job, int num_shards, int64_t block_size,
                         Cuts cuts = Cuts::kAnywhere) {
  const DataShape data = ShapeOf(job.data());
  return *ParameterLayout::Create(ListTensors(*InferShapes(job.model(), data.input, data.target)), num_shards,
                                  block_size, cuts);
}

class ShardHostTest : public testing::Test {
 protected:
  // Pushes a few gradients to every shard and saves all; what a master would write as the manifest.
  v1::Manifest TrainAndSave(const v1::Job& job, const ParameterLayout& layout, const std::string& directory) {
    v1::Manifest manifest;
    manifest.set_number(5);
    *manifest.mutable_job() = job;
    manifest.set_fingerprint(layout.fingerprint());
    for (const TensorSpec& tensor : layout.tensors()) {
      v1::TensorInfo* info = manifest.add_tensors();
      info->set_name(tensor.name);
      info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    }
    for (int s = 0; s < layout.num_shards(); ++s) {
      ShardHost host(job, layout, s, *MakeContents(job, layout, s, "", nullptr), directory);
      v1::ShardCommand command;
      command.set_generation(1);
      *command.add_rosters() = MakeRoster(0, {0});
      host.Control(command, /*now=*/0);
      for (uint64_t i = 0; i < 3; ++i) Push(host.shard(), i);
      const ShardSnapshot snapshot = host.shard()->Snapshot();
      weights_.insert(weights_.end(), snapshot.weights.begin(), snapshot.weights.end());
      if (!snapshot.states.empty()) {
        states_.insert(states_.end(), snapshot.states[0].begin(), snapshot.states[0].end());
      }
      command.set_generation(2);
      command.set_checkpoint(5);
      host.Control(command, /*now=*/0);
      while (host.Control(command, /*now=*/0).saved_size() < 1) std::this_thread::yield();
      *manifest.add_shards() = host.Control(command, /*now=*/0).saved(0);
    }
    return manifest;
  }

  static void Push(Shard* shard, uint64_t version) {
    for (int b = 0; b < shard->num_blocks(); ++b) {
      const BufferPtr values = shard->pool()->Get(shard->block_range(b).size());
      for (int64_t i = 0; i < values->size(); ++i) values->data()[i] = std::sin(i + b + version);
      const BlockHeader header{.operation = v1::Block::PUSH,
                               .sequence = version + 1,
                               .version = version,
                               .block = static_cast<uint32_t>(b),
                               .samples = 8,
                               .steps = version + 1};
      Request request = MakeRequest(0, IncarnationOf(0), header, std::make_shared<NamedSink>(""));
      request.contribution.values = values;
      std::vector<Answer> answers;
      ASSERT_TRUE(shard->Handle(std::move(request), /*now=*/0, &answers).ok());
    }
  }

  std::vector<float> weights_, states_;  // of all shards
};

// A worker that leaves may make a quorum complete, and so set the deadline of an update, whoever commands.
TEST_F(ShardHostTest, DeadlinesAreLookedUpAfterEachCommand) {
  const v1::Job job =
      PresetJob("decoupled_diloco", 3, "algorithm { consistency { quorum { minimum: 2 grace: 0.5 } } }");
  const ParameterLayout layout = LayoutOf(job, 1, 1 << 20);
  ShardHost host(job, layout, 0, *MakeContents(job, layout, 0, "", nullptr), "");
  int looks = 0;
  host.SetAfterCommand([&looks] { ++looks; });
  v1::ShardCommand command;
  *command.add_rosters() = MakeRoster(0, {0, 1, 2});
  for (int generation = 1; generation <= 3; ++generation) {
    command.set_generation(generation);
    host.Control(command, /*now=*/generation);
    EXPECT_EQ(looks, generation);
  }
}

TEST_F(ShardHostTest, InitialWeightsDoNotDependOnHowManyServersThereAre) {
  const v1::Job job = PresetJob("sync", 1);
  const ParameterLayout one = LayoutOf(job, 1, 1000), three = LayoutOf(job, 3, 1000);
  const std::vector<float> whole = MakeContents(job, one, 0, "", nullptr)->weights;
  std::vector<float> parts;
  for (int s = 0; s < 3; ++s) {
    const Shard::Contents contents = *MakeContents(job, three, s, "", nullptr);
    EXPECT_TRUE(contents.blocks.empty());
    parts.insert(parts.end(), contents.weights.begin(), contents.weights.end());
  }
  EXPECT_EQ(parts, whole);
  EXPECT_THAT(whole, testing::Contains(testing::Ne(0.0f)));
}

TEST_F(ShardHostTest, CheckpointIsContinuedByAnyNumberOfServersAndAnySizeOfBlock) {
  const v1::Job job = PresetJob("downpour", 1);
  const std::string directory = Directory("resume");
  const v1::Manifest manifest = TrainAndSave(job, LayoutOf(job, 2, 1000), directory);
  for (int shards : {1, 2, 3}) {
    const ParameterLayout layout = LayoutOf(job, shards, 700);
    std::vector<float> weights, states;
    for (int s = 0; s < shards; ++s) {
      const absl::StatusOr<Shard::Contents> contents = MakeContents(job, layout, s, directory, &manifest);
      ASSERT_TRUE(contents.ok()) << contents.status();
      EXPECT_EQ(contents->checkpoint, 5u);
      ASSERT_EQ(static_cast<int>(contents->blocks.size()), layout.num_blocks(s));
      for (const v1::BlockState& block : contents->blocks) {
        EXPECT_EQ(block.version(), 3u);
        EXPECT_EQ(block.samples(), 24u);
        EXPECT_EQ(block.optimizer_steps(), 3u);
      }
      weights.insert(weights.end(), contents->weights.begin(), contents->weights.end());
      ASSERT_EQ(contents->states.size(), 1u);
      states.insert(states.end(), contents->states[0].begin(), contents->states[0].end());
    }
    EXPECT_EQ(weights, weights_) << shards;
    EXPECT_EQ(states, states_) << shards;
  }
}

TEST_F(ShardHostTest, CheckpointOfWholeTensorsIsContinuedHoweverTheTensorsLie) {
  const v1::Job job = PresetJob("downpour", 1, "optimizer { kind: LARS }");
  const std::string directory = Directory("whole");
  const v1::Manifest manifest = TrainAndSave(job, LayoutOf(job, 2, 1000, Cuts::kBetweenTensors), directory);
  for (const ParameterLayout& layout :
       {LayoutOf(job, 1, 5, Cuts::kBetweenTensors), LayoutOf(job, 2, 100000, Cuts::kBetweenTensors),
        LayoutOf(job, 3, 700)}) {
    std::vector<float> weights, states;
    for (int s = 0; s < layout.num_shards(); ++s) {
      const absl::StatusOr<Shard::Contents> contents = MakeContents(job, layout, s, directory, &manifest);
      ASSERT_TRUE(contents.ok()) << contents.status();
      ASSERT_EQ(static_cast<int>(contents->blocks.size()), layout.num_blocks(s));
      for (const v1::BlockState& block : contents->blocks) EXPECT_EQ(block.version(), 3u);
      weights.insert(weights.end(), contents->weights.begin(), contents->weights.end());
      states.insert(states.end(), contents->states[0].begin(), contents->states[0].end());
    }
    EXPECT_EQ(weights, weights_);
    EXPECT_EQ(states, states_);
  }
}

// Blocks of an asynchronous job may have made different numbers of updates.
TEST_F(ShardHostTest, SynchronousJobContinuesWithTheVersionOfTheMaster) {
  const v1::Job job = PresetJob("downpour", 1);
  const std::string directory = Directory("versions");
  const ParameterLayout layout = LayoutOf(job, 1, 1000);
  v1::Manifest manifest = TrainAndSave(job, layout, directory);
  manifest.mutable_master()->set_version(7);
  for (const auto& [preset, version] : {std::pair("sync", 7u), {"downpour", 3u}}) {
    const absl::StatusOr<Shard::Contents> contents =
        MakeContents(PresetJob(preset, 1), layout, 0, directory, &manifest);
    ASSERT_TRUE(contents.ok()) << contents.status();
    for (const v1::BlockState& block : contents->blocks) EXPECT_EQ(block.version(), version) << preset;
  }
}

TEST_F(ShardHostTest, OtherOptimizerBeginsItsStateAnew) {
  const v1::Job job = PresetJob("downpour", 1);
  const std::string directory = Directory("other");
  const ParameterLayout layout = LayoutOf(job, 1, 1000);
  const v1::Manifest manifest = TrainAndSave(job, layout, directory);
  const v1::Job adam = PresetJob("downpour", 1, "optimizer { kind: ADAM }");
  const absl::StatusOr<Shard::Contents> contents = MakeContents(adam, layout, 0, directory, &manifest);
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->weights, weights_);
  EXPECT_TRUE(contents->states.empty()) << "zeros";
  EXPECT_EQ(contents->blocks[0].optimizer_steps(), 0u);
  EXPECT_EQ(contents->blocks[0].version(), 3u);
}

// With momentum and without it, an uncentered and a centered one keep as many vectors, of another meaning.
TEST_F(ShardHostTest, OptimizerThatIsCenteredFromNowOnBeginsItsStateAnew) {
  const v1::Job plain = PresetJob("downpour", 1, "optimizer { kind: RMSPROP momentum: 0.9 }");
  const std::string directory = Directory("centered");
  const ParameterLayout layout = LayoutOf(plain, 1, 1000);
  const v1::Manifest manifest = TrainAndSave(plain, layout, directory);
  const v1::Job centered = PresetJob("downpour", 1, "optimizer { kind: RMSPROP centered: true }");
  EXPECT_TRUE(MakeContents(centered, layout, 0, directory, &manifest)->states.empty()) << "zeros";
  EXPECT_EQ(MakeContents(plain, layout, 0, directory, &manifest)->states.size(), 2u);
}

TEST_F(ShardHostTest, MomentumThatIsNewBeginsAtZero) {
  const v1::Job plain = PresetJob("downpour", 1, "optimizer { momentum: 0 }");
  const std::string directory = Directory("momentum");
  const ParameterLayout layout = LayoutOf(plain, 1, 1000);
  const v1::Manifest manifest = TrainAndSave(plain, layout, directory);
  const absl::StatusOr<Shard::Contents> contents =
      MakeContents(PresetJob("downpour", 1), layout, 0, directory, &manifest);
  ASSERT_TRUE(contents.ok()) << contents.status();
  ASSERT_EQ(contents->states.size(), 1u);
  EXPECT_THAT(contents->states[0], Each(0.0f));
}

// Gives the states' tensors of checkpoint 5, of one shard, the names that older versions gave them.
void RenameStatesByIndex(const std::string& directory, v1::Manifest* manifest,
                         const std::vector<std::string>& names) {
  ShardFile saved =
      *OpenShard(absl::StrCat(CheckpointDirectory(directory, 5), "/", manifest->shards(0).file()));
  const auto read = [&](const std::string& tensor) {
    std::vector<float> values(saved.state.end() - saved.state.begin());
    EXPECT_TRUE(saved.file->Read(tensor, 0, std::ssize(values), values.data()).ok()) << tensor;
    return values;
  };
  std::vector<std::pair<std::string, std::vector<float>>> tensors = {{"weights", read("weights")}};
  for (size_t i = 0; i < names.size(); ++i) {
    tensors.emplace_back(absl::StrCat("state.", i), read("state." + names[i]));
  }
  std::vector<ShardTensor> to_write;
  for (const auto& [name, values] : tensors) to_write.push_back({name, values});
  *manifest->mutable_shards(0) = *WriteShard(directory, 5, 0, 1, saved.state, to_write);
}

constexpr char kAdaptive[] = "algorithm { compensation { delay_compensated { adaptive: true } } } ";

// The vectors are found by their names, whichever others there are beside them; in older files by their
// places among those of the saved job.
TEST_F(ShardHostTest, VectorsKeepTheirMeaningWhereMomentumIsSwitchedOnOrOff) {
  const std::vector<std::string> momentum = {"momentum_buffer", "delay_compensation.mean_square"};
  const std::vector<std::string> none = {"delay_compensation.mean_square"};
  for (const bool old_file : {false, true}) {
    for (const bool saved_with_momentum : {false, true}) {
      const auto job_with = [](bool with) {
        return PresetJob("downpour", 1,
                         absl::StrCat(kAdaptive, "optimizer { momentum: ", with ? 0.8 : 0.0, " }"));
      };
      const std::string directory = Directory(absl::StrCat("names", old_file, saved_with_momentum));
      const v1::Job saved = job_with(saved_with_momentum);
      const ParameterLayout layout = LayoutOf(saved, 1, 1000);
      v1::Manifest manifest = TrainAndSave(saved, layout, directory);
      if (old_file) RenameStatesByIndex(directory, &manifest, saved_with_momentum ? momentum : none);
      const Shard::Contents before = *MakeContents(saved, layout, 0, directory, &manifest);
      const Shard::Contents after =
          *MakeContents(job_with(!saved_with_momentum), layout, 0, directory, &manifest);
      ASSERT_EQ(before.states.size(), saved_with_momentum ? 2u : 1u);
      ASSERT_EQ(after.states.size(), saved_with_momentum ? 1u : 2u);
      EXPECT_THAT(before.states.back(), testing::Contains(testing::Gt(0.0f)));
      EXPECT_EQ(after.states.back(), before.states.back()) << "the mean square";
      if (!saved_with_momentum) {
        EXPECT_THAT(after.states[0], Each(0.0f)) << "momentum";
      }
      EXPECT_EQ(after.blocks[0].compensation_begin(), 0u);
    }
  }
}

TEST_F(ShardHostTest, CompensationThatIsNewCountsItsOwnSteps) {
  const v1::Job plain = PresetJob("downpour", 1);
  const std::string directory = Directory("compensation");
  const ParameterLayout layout = LayoutOf(plain, 1, 1000);
  const v1::Manifest manifest = TrainAndSave(plain, layout, directory);
  const v1::Job aware = PresetJob("downpour", 1, "algorithm { compensation { gap_aware {} } }");
  const Shard::Contents contents = *MakeContents(aware, layout, 0, directory, &manifest);
  EXPECT_EQ(contents.blocks[0].optimizer_steps(), 3u);
  EXPECT_EQ(contents.blocks[0].compensation_begin(), 3u);
  ASSERT_EQ(contents.states.size(), 2u);
  EXPECT_THAT(contents.states[1], Each(0.0f));
}

TEST_F(ShardHostTest, CheckpointWhoseFileIsGoneIsNamed) {
  const v1::Job job = PresetJob("downpour", 1);
  const std::string directory = Directory("gone");
  const ParameterLayout layout = LayoutOf(job, 1, 1000);
  const v1::Manifest manifest = TrainAndSave(job, layout, directory);
  const std::string file = CheckpointDirectory(directory, 5) + "/" + ShardFileName(0, 1);
  ASSERT_EQ(std::remove(file.c_str()), 0);
  const absl::Status status = MakeContents(job, layout, 0, directory, &manifest).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(file));
}

TEST_F(ShardHostTest, CommandIsAnsweredAndTheEndIsNoted) {
  const v1::Job job = PresetJob("sync", 1);
  const ParameterLayout layout = LayoutOf(job, 1, 1000);
  ShardHost host(job, layout, 0, *MakeContents(job, layout, 0, "", nullptr), "");
  v1::ShardCommand command;
  command.set_generation(2);
  EXPECT_EQ(host.Control(command, /*now=*/0).generation(), 2u);
  EXPECT_FALSE(host.WaitForStop(0));
  command.set_stop(true);
  host.Control(command, /*now=*/0);
  EXPECT_TRUE(host.WaitForStop(60));
}

}  // namespace
}  // namespace catchment
