#include "common/codec/codec.h"

#include <glog/logging.h>

#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/codec/formats.h"
#include "common/codec/scaled_groups.h"
#include "common/codec/top_k.h"

namespace catchment {

Codec Codec::ForPush(const v1::Compression& compression) {
  return Codec(compression.push(), compression.top_k_fraction());
}

Codec Codec::ForPull(const v1::Compression& compression) {
  CHECK(!HasErrorFeedback(compression.pull())) << v1::Compression::Codec_Name(compression.pull());
  return Codec(compression.pull(), 0);
}

size_t Codec::PayloadBytes(int64_t n) const {
  if (const GroupFormat* format = FindGroupFormat(kind_)) return format->PayloadBytes(n);
  switch (kind_) {
    case v1::Compression::BFLOAT16:
    case v1::Compression::FLOAT16:
      return 2 * n;
    case v1::Compression::TOP_K:
      return TopKBytes(TopKCount(top_k_fraction_, n));
    default:
      return sizeof(float) * n;
  }
}

float Codec::Encode(absl::Span<const float> values, char* out) const {
  CHECK(!HasErrorFeedback(kind_)) << v1::Compression::Codec_Name(kind_) << " is encoded by PushEncoder";
  float scale = 1;
  switch (kind_) {
    case v1::Compression::BFLOAT16:
      EncodeBfloat16(values, out);
      break;
    case v1::Compression::FLOAT16:
      scale = ScaleForFloat16(values);
      EncodeFloat16(values, scale, out);
      break;
    default:
      std::memcpy(out, values.data(), sizeof(float) * values.size());
  }
  return scale;
}

void Codec::EncodeZeros(int64_t n, char* out) const {
  if (kind_ == v1::Compression::TOP_K) return EncodeTopKZeros(TopKCount(top_k_fraction_, n), out);
  // In all other formats zeros have no bits.
  std::memset(out, 0, PayloadBytes(n));
}

absl::Status Codec::Check(const PayloadView& payload, float scale, int64_t n) const {
  const std::string& name = v1::Compression::Codec_Name(kind_);
  if (payload.size() != PayloadBytes(n)) {
    return absl::InvalidArgumentError(absl::StrCat("a ", name, " payload of ", n, " values has ",
                                                   PayloadBytes(n), " bytes, but received ", payload.size()));
  }
  if (kind_ != v1::Compression::FLOAT16 && scale != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", name, " payload has no scale, but received scale ", scale));
  }
  if (!(scale > 0 && std::isfinite(scale))) {
    return absl::InvalidArgumentError(absl::StrCat("scale is ", scale, "; it must be a number above 0"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Codec::Decode(const PayloadView& payload, float scale, absl::Span<float> out) const {
  const int64_t n = static_cast<int64_t>(out.size());
  if (absl::Status status = Check(payload, scale, n); !status.ok()) return status;
  if (const GroupFormat* format = FindGroupFormat(kind_)) return DecodeScaledGroups(*format, payload, out);
  switch (kind_) {
    case v1::Compression::BFLOAT16:
      return DecodeBfloat16(payload, out.data());
    case v1::Compression::FLOAT16:
      return DecodeFloat16(payload, scale, out.data());
    case v1::Compression::TOP_K:
      return DecodeTopK(payload, TopKCount(top_k_fraction_, n), out);
    default:
      return DecodeFloat32(payload, out.data());
  }
}

}  // namespace catchment
