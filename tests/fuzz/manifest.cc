// Manifests of checkpoints.
//
// Input: 0 and the whole file, or another byte and the file without its last line, the checksum, which is
// then correct.
#include "common/checkpoint/manifest.h"

#include <glog/logging.h>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/safetensors_header.h"
#include "tests/fuzz/input.h"

namespace catchment {
namespace {

void Test(FuzzInput in) {
  const bool raw = in.Byte() == 0;
  std::string text(in.Rest());
  if (!raw) absl::StrAppend(&text, "# crc32 ", ChecksumText(Crc32(text.data(), text.size())), "\n");
  WriteFuzzFile("checkpoint-1/manifest.textproto", text);
  const absl::StatusOr<v1::Manifest> manifest = ReadManifest(FuzzDirectory(), 1);
  if (!manifest.ok()) return;
  CHECK_EQ(manifest->number(), 1u);
  CHECK_GE(CountParameters(*manifest), 0);
}

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Test(catchment::FuzzInput(data, size));
  return 0;
}
