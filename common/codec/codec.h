// How a block's values become a payload and back (proto/wire.proto, Block.payload), as the job's Compression
// says. A push or a pull is one codec for all of its blocks; both ends take it from the job.
//
// Shapes: a block's n float32 values; a payload has PayloadBytes(n) bytes, known beforehand.
// Threads: safe. Allocates nothing but the text of an error.
// Source: in the header of each codec.
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
  // FLOAT32: the payload is the values' own bytes, so there is nothing to encode; send the memory that they
  // are in.
  bool is_plain() const { return kind_ == v1::Compression::FLOAT32; }

  size_t PayloadBytes(int64_t n) const;

  // Writes the payload of `values` to `out`; returns its Block.scale. Not for TOP_K, which has a memory: that
  // is PushEncoder's (common/codec/push_encoder.h).
  float Encode(absl::Span<const float> values, char* out) const;

  // Writes all of `out`. Returns whether all values are finite. Errors: InvalidArgument, naming what is wrong
  // with a payload that does not belong to a block of so many values; `out` is then undefined.
  absl::StatusOr<bool> Decode(const PayloadView& payload, float scale, absl::Span<float> out) const;

 private:
  Codec(v1::Compression::Codec kind, float top_k_fraction) : kind_(kind), top_k_fraction_(top_k_fraction) {}

  absl::Status Check(const PayloadView& payload, float scale, int64_t n) const;

  v1::Compression::Codec kind_;
  float top_k_fraction_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CODEC_CODEC_H_
