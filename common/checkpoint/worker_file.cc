#include "common/checkpoint/worker_file.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/safetensors.h"

namespace catchment {
namespace {

constexpr char kNumber[] = "number.";  // prefix of names in the file's metadata

std::string PathOf(const std::string& dir, uint64_t number, uint32_t worker) {
  return absl::StrCat(CheckpointDirectory(dir, number), "/worker-", worker, ".safetensors");
}

}  // namespace

absl::Status WriteWorkerState(const std::string& dir, uint64_t number, uint32_t worker,
                              const SavedWorker& state) {
  RETURN_IF_ERROR(CreateDirectories(CheckpointDirectory(dir, number)));
  std::vector<TensorView> tensors;
  for (const auto& [name, values] : state.vectors) {
    tensors.push_back({name, {static_cast<int64_t>(values.size())}, values});
  }
  std::map<std::string, std::string> metadata;
  for (const auto& [name, value] : state.numbers) metadata[absl::StrCat(kNumber, name)] = absl::StrCat(value);
  return WriteSafetensors(PathOf(dir, number, worker), tensors, metadata);
}

absl::StatusOr<SavedWorker> ReadWorkerState(const std::string& dir, uint64_t number, uint32_t worker) {
  ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(PathOf(dir, number, worker)));
  SavedWorker state;
  for (const auto& [key, text] : file->metadata()) {
    absl::string_view name = key;
    if (!absl::ConsumePrefix(&name, kNumber)) continue;
    if (absl::SimpleAtoi(text, &state.numbers[std::string(name)])) continue;
    return absl::DataLossError(
        absl::StrCat(file->path(), ": ", key, " is \"", text, "\", which is not a number"));
  }
  for (const TensorEntry& tensor : file->tensors()) {
    std::vector<float>& values = state.vectors[tensor.name];
    values.resize(tensor.size);
    RETURN_IF_ERROR(file->Read(tensor.name, 0, tensor.size, values.data()));
  }
  return state;
}

absl::Status VerifyWorkerState(const std::string& dir, uint64_t number, uint32_t worker) {
  const auto file = SafetensorsFile::Open(PathOf(dir, number, worker));
  return file.ok() ? (*file)->VerifyChecksums() : file.status();
}

}  // namespace catchment
