// Chooses how each pass of a convolution is computed: in which layouts and by which algorithm.
//
// Candidates are described first, which costs little; reference loops are dropped unless nothing else exists.
// What is left is measured, with the copies between layouts that it needs. The forward pass decides how the
// output lies, and the other two passes and the next layer follow it, so for each layout of the output that
// is about as fast as the fastest, the best three passes are found, and the smallest sum of their times
// decides.
//
// A deterministic backend does not measure: it takes the first of a fixed list that is no reference loop.
// The choice is kept for each geometry without its batch size, so that each is measured once.
#ifndef CATCHMENT_KERNELS_CPU_CONV_CHOICE_H_
#define CATCHMENT_KERNELS_CPU_CONV_CHOICE_H_

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "kernels/cpu/conv_pass.h"

namespace catchment {

struct ConvChoice {
  ConvMethod forward, weights, data;
};
// The choices that were made, by geometry without the batch size (ConvGeometry::Key).
struct ConvChoices {
  absl::flat_hash_map<std::string, ConvChoice> by_geometry;
};

struct ConvSpec {
  ConvGeometry geometry;
  bool relu;            // after the forward pass
  bool input_gradient;  // whether the pass `data` is wanted
};

struct ConvPasses {
  // True if each wanted pass exists.
  bool complete(const ConvSpec& spec) const { return forward && weights && (data || !spec.input_gradient); }

  std::unique_ptr<ConvForward> forward;
  std::unique_ptr<ConvPass> weights;
  std::unique_ptr<ConvPass> data;
};

// Returns passes that are not complete where oneDNN cannot do them. Throws dnnl::error where memory is short.
// `input` must outlive the passes.
ConvPasses MakeConvPasses(CpuContext* context, ConvChoices* choices, const ConvSpec& spec,
                          const CpuActivation& input);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_CONV_CHOICE_H_
