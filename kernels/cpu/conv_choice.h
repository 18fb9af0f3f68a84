// Chooses how each pass of a convolution is computed: in which layouts and by which algorithm.
//
// Candidates are described first, which costs little; reference loops are dropped unless nothing else exists.
// The others are measured, with the copies between layouts that they need. The forward pass determines the
// layout of the output, which the other two passes and the next layer then use. So the best three passes are
// found for each output layout that is about as fast as the fastest, and the layout with the smallest sum of
// their times is chosen.
//
// A deterministic backend does not measure: it takes the first of a fixed list that is not a reference loop.
// Each geometry, without its batch size, is measured once.
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
  bool input_gradient;  // whether the pass `data` is needed
};

struct ConvPasses {
  // Returns true if each needed pass exists.
  bool complete(const ConvSpec& spec) const { return forward && weights && (data || !spec.input_gradient); }

  std::unique_ptr<ConvForward> forward;
  std::unique_ptr<ConvPass> weights;
  std::unique_ptr<ConvPass> data;
};

// Returns incomplete passes if oneDNN cannot compute them. Throws dnnl::error if memory is exhausted.
// `input` must outlive the passes.
ConvPasses MakeConvPasses(CpuContext* context, ConvChoices* choices, const ConvSpec& spec,
                          const CpuActivation& input);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_CONV_CHOICE_H_
