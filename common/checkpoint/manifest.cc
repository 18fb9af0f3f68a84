#include "common/checkpoint/manifest.h"

#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <regex>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"
#include "common/base/file_access.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/safetensors_header.h"
#include "common/job/text_format.h"
#include "glog/logging.h"

namespace catchment {
namespace {

constexpr char kPrefix[] = "checkpoint-";
constexpr char kManifest[] = "manifest.textproto";
constexpr int64_t kLargest = int64_t{1} << 48;  // values

std::string ManifestPath(const std::string& dir, uint64_t number) {
  return absl::StrCat(CheckpointDirectory(dir, number), "/", kManifest);
}

std::string ChecksumLine(const std::string& text) {
  return absl::StrCat("# crc32 ", ChecksumText(Crc32(text.data(), text.size())), "\n");
}

// Returns the text without its last line, the checksum, which must be correct.
absl::StatusOr<std::string> TakeChecked(const std::string& path, const std::string& text) {
  const size_t line = text.rfind("# crc32 ");
  if (line == std::string::npos) {
    return absl::DataLossError(absl::StrCat(path, ": is damaged: its last line, the checksum, is missing"));
  }
  const std::string checked = text.substr(0, line);
  if (text.substr(line) == ChecksumLine(checked)) return checked;
  return absl::DataLossError(absl::StrCat(path, ": is damaged: its checksum does not match its last line"));
}

// Returns true for a directory that has a file of a checkpoint, or is empty. One that cannot be read may be a
// checkpoint, which must not be passed over.
bool MayBeCheckpoint(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return static_cast<bool>(error);
  bool empty = true;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (IsCheckpointFile(entry.path().filename().string())) return true;
    empty = false;
  }
  return empty;
}

// Returns an empty string if there is no problem.
std::string DescribeTensorProblem(const v1::Manifest& manifest) {
  __int128 total = 0;
  for (const v1::TensorInfo& tensor : manifest.tensors()) {
    __int128 size = 1;
    for (int64_t dimension : tensor.shape()) {
      if (dimension < 1) return absl::StrCat("tensor \"", tensor.name(), "\" has a dimension below 1");
      size = std::min<__int128>(size * dimension, kLargest);
    }
    total += size;
    if (total >= kLargest) return absl::StrCat("tensor \"", tensor.name(), "\" has too many values");
  }
  const auto layout = ParameterLayout::Create(ManifestTensors(manifest), 1, 1);
  if (!layout.ok()) return std::string(layout.status().message());
  if (layout->fingerprint() != manifest.fingerprint()) return "its fingerprint is not that of its tensors";
  return "";
}

std::string DescribeShardProblem(const v1::Manifest& manifest) {
  if (manifest.shards().empty()) return "it names no shards";
  for (const v1::SavedShard& shard : manifest.shards()) {
    if (const auto path = PathWithin("the checkpoint", shard.file()); !path.ok())
      return std::string(path.status().message());
  }
  return "";
}

absl::Status CheckManifest(const std::string& path, uint64_t number, const v1::Manifest& manifest) {
  std::string problem = DescribeTensorProblem(manifest);
  if (problem.empty()) problem = DescribeShardProblem(manifest);
  if (manifest.number() != number) {
    problem = absl::StrCat("it is the manifest of checkpoint ", manifest.number());
  }
  if (problem.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", problem));
}

}  // namespace

std::string CheckpointDirectory(const std::string& dir, uint64_t number) {
  return absl::StrCat(dir, "/", kPrefix, number);
}

std::string ShardFileName(int shard, int num_shards) {
  return absl::StrCat("shard-", shard, "-of-", num_shards, ".safetensors");
}

bool IsCheckpointFile(const std::string& name) {
  static const std::regex kFile(
      "(manifest\\.textproto|(shard-[0-9]+-of-[0-9]+|worker-[0-9]+)\\.safetensors)(\\.[0-9a-f]{16}\\.tmp)?");
  return std::regex_match(name, kFile);
}

absl::StatusOr<std::vector<uint64_t>> ListCheckpoints(const std::string& dir) {
  std::error_code error;
  std::filesystem::directory_iterator entries(dir, error);
  if (error == std::errc::no_such_file_or_directory) {
    return absl::NotFoundError(absl::StrCat("there is no directory ", dir));
  }
  std::vector<uint64_t> numbers;
  for (const auto end = std::filesystem::directory_iterator(); !error && entries != end;
       entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    uint64_t number;
    if (!absl::StartsWith(name, kPrefix) || !absl::SimpleAtoi(name.substr(sizeof(kPrefix) - 1), &number)) {
      continue;
    }
    // Not "checkpoint-007" or "checkpoint- 7", which Catchment does not write.
    if (name == absl::StrCat(kPrefix, number) && MayBeCheckpoint(entries->path())) numbers.push_back(number);
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read the directory ", dir));
  std::sort(numbers.begin(), numbers.end(), std::greater<>());
  return numbers;
}

absl::Status WriteManifest(const std::string& dir, const v1::Manifest& manifest) {
  std::string text;
  CHECK(google::protobuf::TextFormat::PrintToString(manifest, &text));
  absl::StrAppend(&text, ChecksumLine(text));
  const absl::Status status = CreateDirectories(CheckpointDirectory(dir, manifest.number()));
  return status.ok() ? WriteAtomically(ManifestPath(dir, manifest.number()), text) : status;
}

absl::StatusOr<v1::Manifest> ReadManifest(const std::string& dir, uint64_t number) {
  const std::string path = ManifestPath(dir, number);
  const auto text = ReadTextFile(path);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat(CheckpointDirectory(dir, number), " is not complete: it has no ",
                                            kManifest, ", which is written last"));
  }
  RETURN_IF_ERROR(text.status());
  ASSIGN_OR_RETURN(const auto checked, TakeChecked(path, *text));
  v1::Manifest manifest;
  RETURN_IF_ERROR(ParseText(checked, path, "", &manifest));
  RETURN_IF_ERROR(CheckManifest(path, number, manifest));
  return manifest;
}

std::vector<TensorSpec> ManifestTensors(const v1::Manifest& manifest) {
  std::vector<TensorSpec> tensors;
  for (const v1::TensorInfo& tensor : manifest.tensors()) {
    tensors.push_back({tensor.name(), {tensor.shape().begin(), tensor.shape().end()}});
  }
  return tensors;
}

int64_t CountParameters(const v1::Manifest& manifest) {
  int64_t count = 0;
  for (const TensorSpec& tensor : ManifestTensors(manifest)) count += tensor.size();
  return count;
}

namespace {

std::string RunRecordPath(const std::string& dir) { return dir + "/run.textproto"; }

}  // namespace

absl::Status WriteRunRecord(const std::string& dir, const v1::RunRecord& record) {
  std::string text;
  CHECK(google::protobuf::TextFormat::PrintToString(record, &text));
  RETURN_IF_ERROR(CreateDirectories(dir));
  return WriteAtomically(RunRecordPath(dir), text);
}

absl::Status DeleteRunRecord(const std::string& dir) {
  if (unlink(RunRecordPath(dir).c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot delete ", RunRecordPath(dir)));
}

absl::StatusOr<v1::RunRecord> ReadRunRecord(const std::string& dir) {
  const std::string path = RunRecordPath(dir);
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  v1::RunRecord record;
  RETURN_IF_ERROR(ParseText(text, path, "", &record));
  return record;
}

}  // namespace catchment
