// Payloads of the k values of a block with the largest magnitudes, with error feedback: values that are not
// sent are added to the next gradient, so that with decay 1 they are only delayed.
//
//   a = decay * residual + gradient
//   send the k largest |a|, with their indices
//   residual = a if it was not sent, 0 if it was sent
//
// k = max(1, fraction * n rounded to the nearest, halves up), for a block of n values. Among equal magnitudes
// those with the lowest indices are sent, so that a run can be repeated. NaN counts as larger than infinity,
// and infinity as larger than all numbers: they are sent if the block contains them, and the server refuses
// the contribution (Block.NON_FINITE). The residual then does not change: this gradient is lost, like any
// refused contribution, and what earlier gradients left is kept.
//
// Payload: k uint32 indices, strictly ascending; k float32 values. 8k bytes.
//
// Source: Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with memory", arXiv:1809.07599 (here the servers'
// optimizer applies the learning rate, after the selection); Seide et al. 2014, "1-bit stochastic gradient
// descent" for error feedback; Lin et al. 2018, "Deep gradient compression", arXiv:1712.01887, whose momentum
// correction is omitted, because momentum is on the servers. The selection is exact in each block. For decay:
// Sarfi et al. 2025, "SparseLoCo", arXiv:2508.15706.
#ifndef CATCHMENT_COMMON_CODEC_TOP_K_H_
#define CATCHMENT_COMMON_CODEC_TOP_K_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/wire/block_frame.h"

namespace catchment {

// `fraction` in (0, 1], n at least 1.
int64_t TopKCount(float fraction, int64_t n);

inline constexpr size_t TopKBytes(int64_t k) { return static_cast<size_t>(k) * 8; }

// Threads: one caller at a time. Allocates only for a block that is larger than all before.
class TopKEncoder {
 public:
  // `gradient` and `residual` have the same number of values. `out` has room for TopKBytes(k); k is at least
  // 1 and at most the number of values.
  void Encode(absl::Span<const float> gradient, float decay, absl::Span<float> residual, int64_t k,
              char* out);

 private:
  // The selected values: all with MagnitudeBits above `bits`, and the first `ties` of those that are equal to
  // it.
  struct Threshold {
    uint32_t bits = 0;
    int64_t ties = 0;
  };

  uint32_t GuessLowerBound(absl::Span<const float> gradient, float decay, absl::Span<const float> residual,
                           int64_t k);
  void Gather(absl::Span<const float> gradient, float decay, absl::Span<const float> residual,
              uint32_t lower_bound);
  Threshold FindThreshold(int64_t k);
  // Returns true if all written values are finite.
  bool Write(absl::Span<const float> gradient, float decay, absl::Span<const float> residual, int64_t k,
             Threshold threshold, char* out) const;

  // The candidates for the k largest: their indices, ascending, and their magnitudes.
  size_t num_candidates_ = 0;
  std::vector<uint32_t> candidates_;
  std::vector<uint32_t> magnitudes_;
};

// Writes a payload without values: zeros at the first k indices. For a contribution that is not part of the
// update.
void EncodeTopKZeros(int64_t k, char* out);

// Decodes a payload of TopKBytes(k), writing all of `out`. Returns true if all values are finite.
// Errors: InvalidArgument for an index outside the block, or one that is not above the previous one; `out` is
// then undefined. Threads: pure function.
absl::StatusOr<bool> DecodeTopK(PayloadView payload, int64_t k, absl::Span<float> out);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CODEC_TOP_K_H_
