#include "common/checkpoint/shard_file.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/safetensors_header.h"
#include "common/job/text_format.h"
#include "glog/logging.h"

namespace catchment {
namespace {

constexpr char kStateKey[] = "catchment";
constexpr char kChecksumKey[] = "crc32-catchment";

// Returns 0 if the ends are not those of blocks from begin to end.
int64_t CountBlockEnds(const v1::ShardState& state) {
  int64_t begin = state.begin();
  for (const int64_t end : state.block_ends()) {
    if (end <= begin) return 0;
    begin = end;
  }
  return begin == state.end() ? state.block_ends_size() : 0;
}

// Returns 0 for an impossible range or impossible blocks.
int64_t CountBlocks(const v1::ShardState& state) {
  if (state.begin() < 0 || state.end() <= state.begin() || state.block_size() < 0) return 0;
  if (state.block_size() == 0) return CountBlockEnds(state);
  return (state.end() - state.begin() - 1) / state.block_size() + 1;
}

// Returns an empty string if there is no problem.
std::string DescribeProblem(const SafetensorsFile& file, const v1::ShardState& state) {
  if (CountBlocks(state) == 0) {
    return absl::StrCat(
        "its range ", state.begin(), " .. ", state.end(), " or ",
        state.block_size() == 0 ? "where its blocks end" : absl::StrCat("block size ", state.block_size()),
        " are impossible");
  }
  if (CountBlocks(state) != state.blocks_size()) {
    return absl::StrCat("it has states of ", state.blocks_size(), " blocks, but its range has ",
                        CountBlocks(state));
  }
  if (!file.Find("weights")) return "it has no tensor \"weights\"";
  for (const TensorEntry& tensor : file.tensors()) {
    if (tensor.size != state.end() - state.begin()) {
      return absl::StrCat("tensor \"", tensor.name, "\" has ", tensor.size, " values, but its range ",
                          state.end() - state.begin());
    }
    if (!file.HasChecksum(tensor)) return absl::StrCat("tensor \"", tensor.name, "\" has no checksum");
  }
  return "";
}

}  // namespace

uint64_t ShardVersion(const v1::ShardState& state) {
  const auto lowest =
      std::min_element(state.blocks().begin(), state.blocks().end(),
                       [](const auto& a, const auto& b) { return a.version() < b.version(); });
  return lowest == state.blocks().end() ? 0 : lowest->version();
}

void AddSteps(const v1::ShardState& state, v1::SavedShard* saved) {
  for (const v1::Watermark& watermark : state.watermarks()) {
    saved->add_incarnations(watermark.incarnation());
    saved->add_settled_steps(watermark.settled_steps());
    saved->add_begun_steps(watermark.begun_steps());
  }
}

Range BlockRange(const v1::ShardState& state, int block) {
  if (state.block_size() == 0) {
    return {block == 0 ? state.begin() : state.block_ends(block - 1), state.block_ends(block)};
  }
  const int64_t begin = state.begin() + block * state.block_size();
  return {begin, std::min(state.end(), begin + state.block_size())};
}

absl::StatusOr<v1::SavedShard> WriteShard(const std::string& dir, uint64_t number, int shard, int num_shards,
                                          v1::ShardState state, const std::vector<ShardTensor>& tensors,
                                          const std::function<void()>& after_part) {
  state.set_checkpoint(number);
  CHECK_EQ(CountBlocks(state), state.blocks_size());
  CHECK_GT(state.blocks_size(), 0);
  std::string text;
  CHECK(google::protobuf::TextFormat::PrintToString(state, &text));
  std::vector<TensorView> views;
  for (const ShardTensor& tensor : tensors) {
    CHECK_EQ(static_cast<int64_t>(tensor.values.size()), state.end() - state.begin()) << tensor.name;
    views.push_back({tensor.name, {state.end() - state.begin()}, tensor.values});
  }
  RETURN_IF_ERROR(CreateDirectories(CheckpointDirectory(dir, number)));
  v1::SavedShard saved;
  saved.set_checkpoint(number);
  saved.set_version(ShardVersion(state));
  saved.set_file(ShardFileName(shard, num_shards));
  RETURN_IF_ERROR(WriteSafetensors(
      absl::StrCat(CheckpointDirectory(dir, number), "/", saved.file()), views,
      {{kStateKey, text}, {kChecksumKey, ChecksumText(Crc32(text.data(), text.size()))}}, after_part));
  return saved;
}

absl::StatusOr<ShardFile> OpenShard(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open(path));
  ShardFile shard{std::move(file), {}};
  const auto& metadata = shard.file->metadata();
  const auto text = metadata.find(kStateKey);
  if (text == metadata.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a safetensors file, but not a shard of a checkpoint: its metadata has no \"",
                     kStateKey, "\""));
  }
  const auto checksum = metadata.find(kChecksumKey);
  if (checksum == metadata.end() ||
      checksum->second != ChecksumText(Crc32(text->second.data(), text->second.size()))) {
    return absl::DataLossError(absl::StrCat(path, ": its metadata is damaged: the CRC-32 does not match"));
  }
  RETURN_IF_ERROR(ParseText(text->second, path + ", metadata", "", &shard.state));
  const std::string problem = DescribeProblem(*shard.file, shard.state);
  if (!problem.empty()) return absl::DataLossError(absl::StrCat(path, ": ", problem));
  return shard;
}

}  // namespace catchment
