// Converts the values of a block to a payload and back (proto/wire.proto, Block.payload), according to the
// job's Compression. All blocks of a push, or of a pull, have the same codec, which both ends take from the
// job.
//
// Shapes: a block's n float32 values; a payload has PayloadBytes(n) bytes.
// Threads: safe. Allocates nothing but the text of an error.
// Source: see formats.h, top_k.h and scaled_groups.h.
#ifndef CATCHMENT_COMMON_CODEC_CODEC_H_
#define CATCHMENT_COMMON_CODEC_CODEC_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/wire/block_frame.h"
#include "proto/job.pb.h"

namespace catchment {

class Codec {
 public:
  // `compression` is complete and valid (common/job/validate.h).
  static Codec ForPush(const v1::Compression& compression);
  static Codec ForPull(const v1::Compression& compression);

  v1::Compression::Codec kind() const { return kind_; }
  // Returns true for FLOAT32: the payload consists of the bytes of the values, which can be sent without
  // encoding.
  bool is_plain() const { return kind_ == v1::Compression::FLOAT32; }

  size_t PayloadBytes(int64_t n) const;

  // Writes the payload of `values` to `out` and returns its Block.scale. Not for codecs with error feedback,
  // which need a residual: see PushEncoder (common/codec/push_encoder.h).
  float Encode(absl::Span<const float> values, char* out) const;
  // Writes the payload of n zeros, for a contribution that is not part of the update. Block.scale is 1.
  void EncodeZeros(int64_t n, char* out) const;

  // Writes all of `out`. Returns true if all values are usable. Errors: InvalidArgument with the reason if
  // the payload is not one of a block with that number of values; `out` is then undefined.
  absl::StatusOr<bool> Decode(const PayloadView& payload, float scale, absl::Span<float> out) const;

 private:
  Codec(v1::Compression::Codec kind, float top_k_fraction) : kind_(kind), top_k_fraction_(top_k_fraction) {}

  absl::Status Check(const PayloadView& payload, float scale, int64_t n) const;

  v1::Compression::Codec kind_;
  float top_k_fraction_;
};

// Returns true for codecs whose encoder keeps a residual, which is everything that earlier payloads lost, and
// adds it to the next contribution. They are for pushes only.
inline bool HasErrorFeedback(v1::Compression::Codec codec) {
  switch (codec) {
    case v1::Compression::TOP_K:
    case v1::Compression::INT8:
    case v1::Compression::E2M1:
    case v1::Compression::E3M0:
      return true;
    default:
      return false;
  }
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CODEC_CODEC_H_
