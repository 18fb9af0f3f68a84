#include "common/checkpoint/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "common/checkpoint/manifest.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/safetensors_header.h"
#include "common/checkpoint/worker_file.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/common/checkpoint/test_files.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// 117 parameters.
std::vector<TensorSpec> Tensors() { return {{"dense1.weight", {10, 11}}, {"dense1.bias", {7}}}; }

ParameterLayout Layout(int num_shards) { return *ParameterLayout::Create(Tensors(), num_shards, 16); }

float Weight(uint64_t number, int64_t i) { return static_cast<float>(number) * 1000 + static_cast<float>(i); }
float State(uint64_t number, int64_t i) { return -Weight(number, i) / 2; }

// Blocks are at versions version, +3, +1, +2, version, ...
v1::ShardState StateOf(const ParameterLayout& layout, int shard, uint64_t version) {
  v1::ShardState state;
  state.set_fingerprint(layout.fingerprint());
  state.set_begin(layout.shard(shard).begin);
  state.set_end(layout.shard(shard).end);
  state.set_block_size(layout.block_size());
  for (int block = 0; block < layout.num_blocks(shard); ++block) {
    constexpr uint64_t kAhead[] = {0, 3, 1, 2};
    const uint64_t block_version = version + kAhead[block % 4];
    v1::BlockState* blocks = state.add_blocks();
    blocks->set_version(block_version);
    blocks->set_samples(64 * block_version);
    blocks->set_optimizer_steps(block_version);
    blocks->set_late_samples(3 * block_version);
  }
  v1::Watermark* watermark = state.add_watermarks();
  watermark->set_worker(shard);
  watermark->set_sequence(9);
  state.set_optimizer("SGD");
  return state;
}

v1::SavedShard SaveShard(const std::string& dir, uint64_t number, const ParameterLayout& layout, int shard) {
  const Range range = layout.shard(shard);
  std::vector<float> weights, momentum;
  for (int64_t i = range.begin; i < range.end; ++i) {
    weights.push_back(Weight(number, i));
    momentum.push_back(State(number, i));
  }
  const auto saved =
      WriteShard(dir, number, shard, layout.num_shards(), StateOf(layout, shard, 100 * number),
                 {{"weights", absl::MakeConstSpan(weights)}, {"state.0", absl::MakeConstSpan(momentum)}});
  EXPECT_TRUE(saved.ok()) << saved.status();
  return saved.value_or(v1::SavedShard());
}

v1::Manifest MakeManifest(uint64_t number, const ParameterLayout& layout) {
  v1::Manifest manifest;
  manifest.set_number(number);
  manifest.set_fingerprint(layout.fingerprint());
  manifest.mutable_job()->set_name("test");
  manifest.mutable_master()->set_train_samples(60000);
  for (const TensorSpec& tensor : layout.tensors()) {
    v1::TensorInfo* info = manifest.add_tensors();
    info->set_name(tensor.name);
    for (int64_t dimension : tensor.shape) info->add_shape(dimension);
  }
  return manifest;
}

v1::Manifest Save(const std::string& dir, uint64_t number, int num_shards) {
  const ParameterLayout layout = Layout(num_shards);
  v1::Manifest manifest = MakeManifest(number, layout);
  for (int shard = 0; shard < num_shards; ++shard) {
    *manifest.add_shards() = SaveShard(dir, number, layout, shard);
  }
  const absl::Status status = WriteManifest(dir, manifest);
  EXPECT_TRUE(status.ok()) << status;
  return manifest;
}

std::string ShardPath(const std::string& dir, uint64_t number, int shard, int num_shards) {
  return CheckpointDirectory(dir, number) + "/" + ShardFileName(shard, num_shards);
}

std::string ManifestPath(const std::string& dir, uint64_t number) {
  return CheckpointDirectory(dir, number) + "/manifest.textproto";
}

TEST(WriteShard, TellsFileAndLowestVersion) {
  const std::string dir = FreshDirectory();
  const v1::SavedShard saved = SaveShard(dir, 3, Layout(2), 1);
  EXPECT_EQ(saved.checkpoint(), 3);
  EXPECT_EQ(saved.version(), 300);
  EXPECT_EQ(saved.file(), "shard-1-of-2.safetensors");
  EXPECT_TRUE(std::filesystem::exists(dir + "/checkpoint-3/shard-1-of-2.safetensors"));
}

TEST(WriteShard, StateComesBack) {
  const std::string dir = FreshDirectory();
  SaveShard(dir, 3, Layout(2), 1);
  const auto shard = OpenShard(ShardPath(dir, 3, 1, 2));
  ASSERT_TRUE(shard.ok()) << shard.status();
  v1::ShardState expected = StateOf(Layout(2), 1, 300);
  expected.set_checkpoint(3);
  EXPECT_EQ(shard->state.DebugString(), expected.DebugString());
}

// As StateOf, in blocks that end where `ends` says.
v1::ShardState StateOfEnds(const std::vector<int64_t>& ends) {
  v1::ShardState state = StateOf(Layout(1), 0, 100);
  state.clear_block_size();
  state.clear_blocks();
  for (int64_t end : ends) {
    state.add_block_ends(end);
    state.add_blocks()->set_version(end);
  }
  return state;
}

absl::StatusOr<ShardFile> WriteAndOpen(const std::string& dir, const v1::ShardState& state) {
  const std::vector<float> weights(117);
  const auto saved = WriteShard(dir, 1, 0, 1, state, {{"weights", absl::MakeConstSpan(weights)}});
  EXPECT_TRUE(saved.ok()) << saved.status();
  return OpenShard(ShardPath(dir, 1, 0, 1));
}

TEST(WriteShard, BlocksOfAnySizeComeBack) {
  const auto shard = WriteAndOpen(FreshDirectory(), StateOfEnds({3, 110, 117}));
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_EQ(BlockRange(shard->state, 0), (Range{0, 3}));
  EXPECT_EQ(BlockRange(shard->state, 1), (Range{3, 110}));
  EXPECT_EQ(BlockRange(shard->state, 2), (Range{110, 117}));
}

TEST(OpenShard, RefusesBlocksThatCannotBe) {
  for (const std::vector<int64_t>& ends :
       std::vector<std::vector<int64_t>>{{}, {110}, {0, 117}, {50, 40, 117}, {50, 50, 117}, {110, 118}}) {
    const std::string dir = FreshDirectory();
    ASSERT_TRUE(WriteAndOpen(dir, StateOfEnds({50, 110, 117})).ok());
    const std::string path = ShardPath(dir, 1, 0, 1);
    v1::ShardState state = StateOfEnds(ends);
    state.set_checkpoint(1);
    std::string text;
    google::protobuf::TextFormat::PrintToString(state, &text);
    const std::vector<float> weights(117);
    ASSERT_TRUE(WriteSafetensors(
                    path, {{"weights", {117}, absl::MakeConstSpan(weights)}},
                    {{"catchment", text}, {"crc32-catchment", ChecksumText(Crc32(text.data(), text.size()))}})
                    .ok());
    EXPECT_THAT(std::string(OpenShard(path).status().message()),
                HasSubstr("its range 0 .. 117 or where its blocks end are impossible"))
        << ::testing::PrintToString(ends);
  }
}

TEST(WriteShard, FullDiskIsAnErrorAndLeavesNoFile) {
  const std::string dir = FreshDirectory();
  std::filesystem::create_directories(CheckpointDirectory(dir, 1));
  const FileSizeLimit limit(16);
  const ParameterLayout layout = Layout(1);
  const std::vector<float> weights(layout.size());
  const auto saved =
      WriteShard(dir, 1, 0, 1, StateOf(layout, 0, 5), {{"weights", absl::MakeConstSpan(weights)}});
  EXPECT_THAT(std::string(saved.status().message()),
              AllOf(HasSubstr(ShardPath(dir, 1, 0, 1)), HasSubstr("File too large")));
  EXPECT_TRUE(std::filesystem::is_empty(CheckpointDirectory(dir, 1)));
}

TEST(OpenShards, ShardOfAnotherRunIsNamed) {
  const std::string dir = FreshDirectory();
  v1::Manifest manifest = Save(dir, 1, 1);
  EXPECT_TRUE(OpenShards(dir, manifest).ok()) << "of before there were ids";
  manifest.set_run_id(0xab);
  const absl::Status status = OpenShards(dir, manifest).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("belongs to run 0000000000000000, but the manifest to run 00000000000000ab"));
}

TEST(FindLatest, TakesTheNewestByNumber) {
  const std::string dir = FreshDirectory();
  for (uint64_t number : {9, 10, 2}) Save(dir, number, 2);
  const auto found = FindLatest(dir);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->manifest.number(), 10);
  EXPECT_EQ(found->manifest.master().train_samples(), 60000);
  EXPECT_THAT(found->warnings, IsEmpty());
}

TEST(FindLatest, NothingThereNamesTheDirectory) {
  const std::string dir = FreshDirectory();
  const auto empty = FindLatest(dir);
  EXPECT_EQ(empty.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(empty.status().message(), "there is no checkpoint to resume from in " + dir);
  const auto missing = FindLatest(dir + "/none");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.status().message(), "there is no directory " + dir + "/none");
}

TEST(FindLatest, SkipsIncompleteOnesWithAWarning) {
  const std::string dir = FreshDirectory();
  Save(dir, 1, 2);
  SaveShard(dir, 2, Layout(2), 0);
  Save(dir, 3, 2);
  std::filesystem::remove(ShardPath(dir, 3, 1, 2));
  const auto found = FindLatest(dir);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->manifest.number(), 1);
  ASSERT_EQ(found->warnings.size(), 2u);
  EXPECT_THAT(found->warnings[0],
              AllOf(HasSubstr("skipped checkpoint 3: "), HasSubstr("shard-1-of-2.safetensors")));
  EXPECT_THAT(found->warnings[1],
              AllOf(HasSubstr("skipped checkpoint 2: "), HasSubstr("it has no manifest.textproto")));
}

TEST(FindLatest, SkipsThoseWithANamedPipeOrADeviceInPlaceOfAFile) {
  const std::string dir = FreshDirectory();
  Save(dir, 1, 2);
  uint64_t number = 1;
  for (const bool is_pipe : {true, false}) {
    for (const bool is_manifest : {true, false}) {
      Save(dir, ++number, 2);
      const std::string path = is_manifest ? ManifestPath(dir, number) : ShardPath(dir, number, 1, 2);
      std::filesystem::remove(path);
      if (is_pipe) {
        ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
      } else {
        std::filesystem::create_symlink("/dev/zero", path);
      }
    }
  }
  const auto found = FindLatest(dir);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->manifest.number(), 1);
  EXPECT_THAT(found->warnings, AllOf(SizeIs(4), Each(HasSubstr(": is not a regular file"))));
  const std::string record = dir + "/run.textproto";
  ASSERT_EQ(mkfifo(record.c_str(), 0600), 0);
  EXPECT_EQ(ReadRunRecord(dir).status().message(), record + ": is not a regular file");
}

TEST(FindLatest, WhenNoneIsSoundAllReasonsAreGiven) {
  const std::string dir = FreshDirectory();
  SaveShard(dir, 2, Layout(1), 0);
  const auto found = FindLatest(dir);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(found.status().message()),
              AllOf(HasSubstr(dir), HasSubstr("\nskipped checkpoint 2: ")));
}

TEST(FindLatest, IgnoresDirectoriesOfOtherNames) {
  const std::string dir = FreshDirectory();
  Save(dir, 1, 1);
  for (const char* name : {"checkpoint-", "checkpoint-x", "checkpoint-007", "checkpoint--1", "other"}) {
    std::filesystem::create_directories(dir + "/" + name);
  }
  const auto numbers = ListCheckpoints(dir);
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  EXPECT_THAT(*numbers, ElementsAre(1));
}

TEST(FindLatest, EveryTruncationOfTheManifestIsNoticed) {
  const std::string dir = FreshDirectory();
  Save(dir, 1, 1);
  Save(dir, 2, 1);
  const std::string whole = FileBytes(ManifestPath(dir, 2));
  for (size_t size = 0; size < whole.size(); ++size) {
    SetFileBytes(ManifestPath(dir, 2), whole.substr(0, size));
    const auto found = FindLatest(dir);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(found->manifest.number(), 1) << size;
    ASSERT_THAT(found->warnings, ElementsAre(HasSubstr("manifest.textproto: is damaged")));
  }
}

TEST(FindLatest, EveryTruncationOfAShardIsNoticed) {
  const std::string dir = FreshDirectory();
  Save(dir, 1, 2);
  Save(dir, 2, 2);
  const std::string path = ShardPath(dir, 2, 1, 2);
  const std::string whole = FileBytes(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    SetFileBytes(path, whole.substr(0, size));
    const auto found = FindLatest(dir);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(found->manifest.number(), 1) << size;
    ASSERT_THAT(found->warnings, ElementsAre(HasSubstr(path)));
  }
}

TEST(FindLatest, DamagedValuesAreNoticed) {
  const std::string dir = FreshDirectory();
  Save(dir, 1, 1);
  Save(dir, 2, 1);
  std::string bytes = FileBytes(ShardPath(dir, 2, 0, 1));
  bytes.back() ^= 1;
  SetFileBytes(ShardPath(dir, 2, 0, 1), bytes);
  const auto found = FindLatest(dir);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->manifest.number(), 1);
  EXPECT_THAT(found->warnings, ElementsAre(HasSubstr("tensor \"state.0\" is damaged")));
}

TEST(FindLatest, EveryTruncationOfAWorkersStateIsNoticed) {
  const std::string dir = FreshDirectory();
  Save(dir, 1, 1);
  v1::Manifest manifest = Save(dir, 2, 1);
  ASSERT_TRUE(WriteWorkerState(dir, 2, 3, {{{"velocity", {1, 2, 3}}}, {{"steps", 5}}}).ok());
  manifest.mutable_master()->add_worker_states(3);
  ASSERT_TRUE(WriteManifest(dir, manifest).ok());
  EXPECT_EQ(FindLatest(dir)->manifest.number(), 2);
  const std::string path = CheckpointDirectory(dir, 2) + "/worker-3.safetensors";
  std::string bytes = FileBytes(path);
  for (size_t size = 0; size < bytes.size(); ++size) {
    SetFileBytes(path, bytes.substr(0, size));
    const auto found = FindLatest(dir);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(found->manifest.number(), 1) << size;
    ASSERT_THAT(found->warnings, ElementsAre(HasSubstr(path)));
  }
  bytes.back() ^= 1;
  SetFileBytes(path, bytes);
  EXPECT_EQ(FindLatest(dir)->manifest.number(), 1);
  std::filesystem::remove(path);
  EXPECT_EQ(FindLatest(dir)->manifest.number(), 1);
  std::filesystem::remove(ManifestPath(dir, 1));
  EXPECT_EQ(FindLatest(dir)->manifest.number(), 2)
      << "its weights are intact, and there is no other checkpoint";
}

// A file that cannot be read may be sound: going back to an older checkpoint would lose what it holds.
TEST(FindLatest, AReadErrorIsAnErrorAndSkipsNothing) {
  const std::string dir = FreshDirectory();
  Save(dir, 1, 1);
  Save(dir, 2, 1);
  // Opening a symbolic link to itself fails with ELOOP, also for root, who may read files of any mode.
  const std::string path = ShardPath(dir, 2, 0, 1);
  std::filesystem::rename(path, path + ".away");
  std::filesystem::create_symlink(path, path);
  const auto found = FindLatest(dir);
  ASSERT_FALSE(found.ok());
  EXPECT_FALSE(absl::IsNotFound(found.status())) << found.status();
  EXPECT_THAT(std::string(found.status().message()),
              AllOf(HasSubstr("checkpoint 2"), HasSubstr(path), HasSubstr("make it readable")));
  std::filesystem::remove(path);
  std::filesystem::rename(path + ".away", path);
  const auto again = FindLatest(dir);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->manifest.number(), 2);
}

TEST(SetAsideNewerThan, RenamesDamagedOnesAndDeletesThoseThatWereNeverComplete) {
  const std::string dir = FreshDirectory();
  for (uint64_t number : {1, 2, 4}) Save(dir, number, 1);
  SaveShard(dir, 3, Layout(1), 0);
  SetFileBytes(ShardPath(dir, 2, 0, 1), "cut");
  std::filesystem::create_directory(CheckpointDirectory(dir, 2) + ".unusable");
  SetFileBytes(ManifestPath(dir, 4), "cut");
  const auto lines = SetAsideNewerThan(dir, 1);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_THAT(*lines,
              ElementsAre(HasSubstr("checkpoint-4.unusable"), HasSubstr("checkpoint 3 was never complete"),
                          HasSubstr("checkpoint-2.unusable-2")));
  EXPECT_THAT(*ListCheckpoints(dir), ElementsAre(1));
  EXPECT_EQ(FileBytes(dir + "/checkpoint-2.unusable-2/" + ShardFileName(0, 1)), "cut");
  EXPECT_EQ(FileBytes(dir + "/checkpoint-4.unusable/manifest.textproto"), "cut");
}

TEST(OpenShard, FlippedBitsAreNoticedOrDoNoHarm) {
  const std::string dir = FreshDirectory();
  SaveShard(dir, 1, Layout(4), 1);
  const std::string path = ShardPath(dir, 1, 1, 4);
  const std::string whole = FileBytes(path);
  const auto sound = OpenShard(path);
  ASSERT_TRUE(sound.ok()) << sound.status();
  for (size_t i = 0; i < whole.size(); ++i) {
    for (char bit : {'\x01', '\x20', '\x80'}) {
      std::string bytes = whole;
      bytes[i] ^= bit;
      SetFileBytes(path, bytes);
      const auto shard = OpenShard(path);
      if (!shard.ok() || !shard->file->VerifyChecksums().ok()) continue;
      EXPECT_EQ(shard->state.DebugString(), sound->state.DebugString()) << i;
      std::vector<float> values(shard->state.end() - shard->state.begin());
      ASSERT_TRUE(shard->file->Read("weights", 0, values.size(), values.data()).ok()) << i;
      EXPECT_EQ(values[3], Weight(1, shard->state.begin() + 3)) << i;
      EXPECT_TRUE(shard->file->Read("state.0", 0, values.size(), values.data()).ok()) << i;
    }
  }
}

TEST(OpenShard, ForeignFileIsRefused) {
  const std::string path = FreshDirectory() + "/theirs.safetensors";
  const std::vector<float> values(4);
  ASSERT_TRUE(
      WriteSafetensors(path, {{"weights", {4}, absl::MakeConstSpan(values)}}, {{"format", "pt"}}).ok());
  EXPECT_THAT(std::string(OpenShard(path).status().message()),
              AllOf(HasSubstr(path), HasSubstr("not a shard of a checkpoint")));
}

TEST(OpenShards, ShardsOfOthersAreRefusedByName) {
  const std::string dir = FreshDirectory();
  const v1::Manifest manifest = Save(dir, 1, 2);
  Save(dir, 2, 2);
  Save(dir, 3, 1);
  const auto error_with = [&](const std::string& from) {
    std::filesystem::copy_file(from, ShardPath(dir, 1, 0, 2),
                               std::filesystem::copy_options::overwrite_existing);
    return std::string(OpenShards(dir, manifest).status().message());
  };
  const std::string path = ShardPath(dir, 1, 0, 2);
  EXPECT_EQ(error_with(ShardPath(dir, 2, 0, 2)), path + ": is a shard of checkpoint 2");
  EXPECT_EQ(error_with(ShardPath(dir, 1, 1, 2)), path + ": begins at parameter 64, not 0");
  const auto layout = ParameterLayout::Create({{"x", {117}}}, 2, 16);
  const std::vector<float> weights(layout->shard(0).size());
  const auto saved =
      WriteShard(dir, 9, 0, 2, StateOf(*layout, 0, 100), {{"weights", absl::MakeConstSpan(weights)}});
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(error_with(ShardPath(dir, 9, 0, 2)), path + ": is a shard of a different model");
}

TEST(OpenShards, ShardsOfAnotherSaveUnderTheSameNumberAreRefused) {
  const std::string dir = FreshDirectory();
  const v1::Manifest manifest = Save(dir, 1, 1);
  const ParameterLayout layout = Layout(1);
  const std::vector<float> weights(layout.size());
  ASSERT_TRUE(
      WriteShard(dir, 1, 0, 1, StateOf(layout, 0, 777), {{"weights", absl::MakeConstSpan(weights)}}).ok());
  EXPECT_THAT(std::string(OpenShards(dir, manifest).status().message()),
              HasSubstr("was saved at version 777, but the manifest says 100"));
}

TEST(OpenShards, MissingShardOfTheModelIsNoticed) {
  const std::string dir = FreshDirectory();
  v1::Manifest manifest = Save(dir, 1, 2);
  manifest.mutable_shards()->RemoveLast();
  EXPECT_THAT(std::string(OpenShards(dir, manifest).status().message()),
              HasSubstr("its shards contain 64 parameters, but its model has 117"));
}

TEST(ReadManifest, ComesBackAndIsForItsOwnCheckpointOnly) {
  const std::string dir = FreshDirectory();
  const v1::Manifest manifest = Save(dir, 1, 2);
  const auto read = ReadManifest(dir, 1);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->DebugString(), manifest.DebugString());
  EXPECT_EQ(CountParameters(*read), 117);
  std::filesystem::create_directories(CheckpointDirectory(dir, 5));
  std::filesystem::copy_file(ManifestPath(dir, 1), ManifestPath(dir, 5));
  EXPECT_THAT(std::string(ReadManifest(dir, 5).status().message()),
              HasSubstr("it is the manifest of checkpoint 1"));
}

TEST(ReadManifest, ContradictionsAreRefused) {
  const std::string dir = FreshDirectory();
  const v1::Manifest sound = Save(dir, 1, 1);
  const auto error = [&](const auto& change) {
    v1::Manifest manifest = sound;
    change(&manifest);
    EXPECT_TRUE(WriteManifest(dir, manifest).ok());
    return std::string(ReadManifest(dir, 1).status().message());
  };
  EXPECT_THAT(error([](v1::Manifest* m) { m->set_fingerprint(1); }),
              HasSubstr("fingerprint is not that of its tensors"));
  EXPECT_THAT(error([](v1::Manifest* m) { m->clear_tensors(); }), HasSubstr("no parameters"));
  EXPECT_THAT(error([](v1::Manifest* m) { m->mutable_tensors(0)->set_shape(0, -4); }),
              HasSubstr("dimension below 1"));
  EXPECT_THAT(error([](v1::Manifest* m) { m->mutable_tensors(0)->set_shape(0, INT64_MAX); }),
              HasSubstr("too many values"));
  EXPECT_THAT(error([](v1::Manifest* m) { m->clear_shards(); }), HasSubstr("it names no shards"));
  for (const std::string name : {"", ".", "..", "../../etc/passwd", "/etc/passwd", "a\x1b", "a\177"}) {
    EXPECT_THAT(error([&](v1::Manifest* m) { m->mutable_shards(0)->set_file(name); }),
                HasSubstr("\" is not the name of a file in the checkpoint"))
        << name;
  }
}

TEST(OpenShards, NamesThatLeaveTheCheckpointAreRefused) {
  const std::string dir = FreshDirectory();
  v1::Manifest manifest = Save(dir, 1, 1);
  Save(dir, 2, 1);
  manifest.mutable_shards(0)->set_file("../checkpoint-2/" + manifest.shards(0).file());
  EXPECT_THAT(std::string(OpenShards(dir, manifest).status().message()),
              HasSubstr("is not the name of a file in " + CheckpointDirectory(dir, 1)));
}

TEST(ReadParameters, AnyRangeOfAnyNumberOfShards) {
  const std::string dir = FreshDirectory();
  for (int num_shards : {1, 2, 3, 8}) {
    const v1::Manifest manifest = Save(dir, num_shards, num_shards);
    for (int64_t begin = 0; begin <= 117; begin += 13) {
      for (int64_t end = begin; end <= 117; ++end) {
        std::vector<float> weights(end - begin), state(end - begin);
        ASSERT_TRUE(ReadParameters(dir, manifest, {begin, end}, "weights", weights.data()).ok());
        ASSERT_TRUE(ReadParameters(dir, manifest, {begin, end}, "state.0", state.data()).ok());
        for (int64_t i = begin; i < end; ++i) {
          ASSERT_EQ(weights[i - begin], Weight(num_shards, i));
          ASSERT_EQ(state[i - begin], State(num_shards, i));
        }
      }
    }
  }
}

TEST(ReadParameters, WhatIsNotThereIsNamed) {
  const std::string dir = FreshDirectory();
  const v1::Manifest manifest = Save(dir, 1, 2);
  std::vector<float> out(200);
  const absl::Status no_tensor = ReadParameters(dir, manifest, {0, 5}, "state.1", out.data());
  EXPECT_EQ(no_tensor.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(no_tensor.message()),
              HasSubstr("has no tensor \"state.1\"; it has weights, state.0"));
  for (const Range range : {Range{0, 118}, Range{-1, 5}, Range{5, 4}}) {
    const absl::Status status = ReadParameters(dir, manifest, range, "weights", out.data());
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(status.message()), HasSubstr("has 117 parameters"));
  }
}

TEST(ReadParameters, DamageIsNoticedWhenAShardIsReadAsAWhole) {
  const std::string dir = FreshDirectory();
  const v1::Manifest manifest = Save(dir, 1, 2);
  const std::string path = ShardPath(dir, 1, 1, 2);
  std::string bytes = FileBytes(path);
  bytes.back() ^= 4;
  SetFileBytes(path, bytes);
  std::vector<float> out(117);
  EXPECT_EQ(ReadParameters(dir, manifest, {0, 117}, "state.0", out.data()).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(ReadParameters(dir, manifest, {0, 117}, "weights", out.data()).ok());
}

TEST(ReadBlockStates, TakesTheHighestOfTheBlocksThatOverlap) {
  const std::string dir = FreshDirectory();
  // Two shards, 0 .. 64 and 64 .. 117, in blocks of 16: versions 100, 103, 101, 102 and again.
  const v1::Manifest manifest = Save(dir, 1, 2);
  const auto versions = [&](Range range, int64_t block_size) {
    std::vector<Range> blocks;
    for (int64_t begin = range.begin; begin < range.end; begin += block_size) {
      blocks.push_back({begin, std::min(range.end, begin + block_size)});
    }
    const auto states = ReadBlockStates(dir, manifest, blocks);
    EXPECT_TRUE(states.ok()) << states.status();
    std::vector<uint64_t> out;
    for (const v1::BlockState& state : *states) {
      out.push_back(state.version());
      EXPECT_EQ(state.samples(), 64 * state.version());
      EXPECT_EQ(state.optimizer_steps(), state.version());
      EXPECT_EQ(state.late_samples(), 3 * state.version());
    }
    return out;
  };
  EXPECT_THAT(versions({0, 117}, 16), ElementsAre(100, 103, 101, 102, 100, 103, 101, 102));
  EXPECT_THAT(versions({0, 117}, 1000), ElementsAre(103));
  EXPECT_THAT(versions({0, 64}, 24), ElementsAre(103, 103, 102));
  EXPECT_THAT(versions({60, 70}, 4), ElementsAre(102, 100, 100));
  EXPECT_THAT(versions({15, 17}, 1), ElementsAre(100, 103));
  EXPECT_THAT(versions({5, 5}, 1), IsEmpty());
}

// Saves a shard in this state, and returns the states of two blocks that join its blocks.
absl::StatusOr<std::vector<v1::BlockState>> ReadInTwoBlocks(v1::ShardState state) {
  const std::string dir = FreshDirectory();
  state.set_checkpoint(1);
  const std::vector<float> weights(117);
  v1::Manifest manifest = MakeManifest(1, Layout(1));
  const auto saved = WriteShard(dir, 1, 0, 1, state, {{"weights", absl::MakeConstSpan(weights)}});
  if (!saved.ok()) return saved.status();
  *manifest.add_shards() = *saved;
  const std::vector<Range> blocks = {{0, 20}, {20, 117}};
  return ReadBlockStates(dir, manifest, blocks);
}

// Without it staleness-aware momentum would have to be measured again after each resume.
TEST(ReadBlockStates, TakesTheMomentumOfTheHighestVersion) {
  v1::ShardState state = StateOf(Layout(1), 0, 100);
  for (v1::BlockState& block : *state.mutable_blocks()) {
    block.mutable_momentum()->set_staleness_mean(static_cast<double>(block.version()));
  }
  const auto states = ReadInTwoBlocks(state);
  ASSERT_TRUE(states.ok()) << states.status();
  for (const v1::BlockState& block : *states) {
    EXPECT_EQ(block.momentum().staleness_mean(), static_cast<double>(block.version()));
  }
}

// Blocks that have received the same samples had different ones of them too late for their updates.
TEST(ReadBlockStates, SamplesAndLateSamplesAddUpToThoseOfABlock) {
  v1::ShardState state = StateOf(Layout(1), 0, 100);
  uint64_t late = 0;
  for (v1::BlockState& block : *state.mutable_blocks()) {
    late += 7;
    block.set_samples(1000 - late);
    block.set_late_samples(late);
  }
  const auto states = ReadInTwoBlocks(state);
  ASSERT_TRUE(states.ok()) << states.status();
  for (const v1::BlockState& block : *states) EXPECT_EQ(block.samples() + block.late_samples(), 1000u);
}

TEST(CheckSameModel, NamesTheFirstDifference) {
  const std::string dir = FreshDirectory();
  const v1::Manifest manifest = Save(dir, 1, 1);
  EXPECT_TRUE(CheckSameModel(dir, manifest, Tensors()).ok());
  const absl::Status status =
      CheckSameModel(dir, manifest, {{"dense1.weight", {10, 12}}, {"dense1.bias", {7}}});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(dir + "/checkpoint-1 belongs to a different model, that of job \"test\""),
                    HasSubstr("expected dense1.weight 10x12, got dense1.weight 10x11")));
}

TEST(Prune, KeepsTheNewestCompleteOnesAndWhatIsUnderWay) {
  const std::string dir = FreshDirectory();
  for (uint64_t number : {1, 2, 4, 6}) Save(dir, number, 1);
  SaveShard(dir, 3, Layout(1), 0);
  SaveShard(dir, 5, Layout(1), 0);
  SaveShard(dir, 7, Layout(1), 0);
  ASSERT_TRUE(Prune(dir, 2).ok());
  EXPECT_THAT(*ListCheckpoints(dir), ElementsAre(7, 6, 4));
}

// Other trainers use the same names.
TEST(Prune, CheckpointsAndFilesOfOtherProgramsAreNeitherCountedNorDeleted) {
  const std::string dir = FreshDirectory();
  for (const uint64_t number : {1, 2, 3}) Save(dir, number, 1);
  const std::string theirs = dir + "/checkpoint-500", in_ours = CheckpointDirectory(dir, 1) + "/optimizer.pt";
  std::filesystem::create_directories(theirs);
  SetFileBytes(theirs + "/model.safetensors", "theirs");
  SetFileBytes(in_ours, "theirs");
  EXPECT_THAT(*ListCheckpoints(dir), ElementsAre(3, 2, 1));
  ASSERT_TRUE(SetAsideNewerThan(dir, 3).ok() && Prune(dir, 1).ok());
  EXPECT_FALSE(std::filesystem::exists(CheckpointDirectory(dir, 2)));
  ASSERT_TRUE(DeleteAllCheckpoints(dir).ok());
  EXPECT_FALSE(std::filesystem::exists(CheckpointDirectory(dir, 3)));
  EXPECT_EQ(FileBytes(theirs + "/model.safetensors"), "theirs");
  EXPECT_EQ(FileBytes(in_ours), "theirs");
}

TEST(Prune, DamagedOnesCrowdOutNoSoundOne) {
  const std::string dir = FreshDirectory();
  for (uint64_t number : {1, 2, 3}) Save(dir, number, 1);
  SetFileBytes(ShardPath(dir, 3, 0, 1), "cut");
  ASSERT_TRUE(Prune(dir, 1).ok());
  EXPECT_THAT(*ListCheckpoints(dir), ElementsAre(3, 2));
  EXPECT_EQ(FindLatest(dir)->manifest.number(), 2);
}

TEST(Prune, NothingCompleteNothingDeleted) {
  const std::string dir = FreshDirectory();
  SaveShard(dir, 3, Layout(1), 0);
  ASSERT_TRUE(Prune(dir, 1).ok());
  EXPECT_THAT(*ListCheckpoints(dir), ElementsAre(3));
  EXPECT_EQ(Prune(dir + "/none", 1).code(), absl::StatusCode::kNotFound);
}

TEST(Checksum, IsZlibsCrc32) {
  EXPECT_EQ(ChecksumText(Crc32("123456789", 9)), "cbf43926");
  EXPECT_EQ(Crc32("6789", 4, Crc32("12345", 5)), Crc32("123456789", 9));
  EXPECT_EQ(ChecksumText(1), "00000001");
}

}  // namespace
}  // namespace catchment
