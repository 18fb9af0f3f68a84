// Safetensors files: of weights, of a shard, of a worker.
//
// Input: 0 and the whole file, or another byte, the header's JSON up to a byte 0, and the values.
#include "common/checkpoint/safetensors.h"

#include <glog/logging.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/model_file.h"
#include "common/checkpoint/shard_file.h"
#include "common/checkpoint/worker_file.h"
#include "tests/fuzz/input.h"

namespace catchment {
namespace {

std::string MakeFile(FuzzInput in) {
  if (in.Byte() == 0) return std::string(in.Rest());
  const absl::string_view rest = in.Rest();
  const size_t json = std::min(rest.find('\0'), rest.size());
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(json >> (8 * i)));
  absl::StrAppend(&file, rest.substr(0, json));
  if (json < rest.size()) absl::StrAppend(&file, rest.substr(json + 1));
  return file;
}

void ReadAll(const SafetensorsFile& file, size_t bytes) {
  for (const TensorEntry& tensor : file.tensors()) {
    CHECK_LE(static_cast<size_t>(tensor.size) * sizeof(float), bytes) << tensor.name;
    std::vector<float> values(tensor.size);
    file.Read(tensor.name, 0, tensor.size, values.data()).IgnoreError();
    if (tensor.size > 1) file.Read(tensor.name, 1, tensor.size - 1, values.data()).IgnoreError();
  }
  file.VerifyChecksums().IgnoreError();
}

void Test(FuzzInput in) {
  const std::string bytes = MakeFile(in);
  const std::string path = WriteFuzzFile("checkpoint-1/worker-0.safetensors", bytes);
  if (const auto file = SafetensorsFile::Open(path); file.ok()) ReadAll(**file, bytes.size());
  OpenShard(path).status().IgnoreError();
  ReadWorkerState(FuzzDirectory(), 1, 0).status().IgnoreError();
  static const ParameterLayout* const layout =
      new ParameterLayout(*ParameterLayout::Create({{"w", {2, 3}}}, 1, 4));
  ReadModelScore(path, *layout).status().IgnoreError();
}

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Test(catchment::FuzzInput(data, size));
  return 0;
}
