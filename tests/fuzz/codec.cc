// Payloads of pushes, of each codec.
//
// Input: the codec, the number of values in two bytes, the scale in four, the payload.
#include "common/codec/codec.h"

#include <glog/logging.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tests/fuzz/input.h"

namespace catchment {
namespace {

void Test(FuzzInput in) {
  v1::Compression compression;
  compression.set_push(static_cast<v1::Compression::Codec>(in.Below(v1::Compression::Codec_MAX + 1)));
  compression.set_top_k_fraction(0.1f);
  const Codec codec = Codec::ForPush(compression);
  const auto n = static_cast<int64_t>(1 + in.Number(2) % 4096);
  const float scale = std::bit_cast<float>(static_cast<uint32_t>(in.Number(4)));
  const absl::string_view bytes = in.Rest();
  // In two pieces, as a network may deliver it.
  const std::vector<absl::string_view> pieces = {bytes.substr(0, bytes.size() / 3),
                                                 bytes.substr(bytes.size() / 3)};
  std::vector<float> values(n);
  const absl::StatusOr<bool> usable =
      codec.Decode(PayloadView(pieces, 0, bytes.size()), scale, absl::MakeSpan(values));
  if (!usable.ok()) return;
  CHECK_EQ(bytes.size(), codec.PayloadBytes(n));
  bool all_usable = true;
  for (const float value : values) all_usable = all_usable && std::abs(value) < 0x1p63f;
  CHECK_EQ(*usable, all_usable);
}

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Test(catchment::FuzzInput(data, size));
  return 0;
}
