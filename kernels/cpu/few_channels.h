// The gradient of the weights of a convolution over an input of few channels, such as the first layer's over
// gray or color images. oneDNN's kernels for AVX2 want eight channels side by side there; these loops take
// the input in plain order, and eight filters at a time from the blocked gradient of the output.
#ifndef CATCHMENT_KERNELS_CPU_FEW_CHANNELS_H_
#define CATCHMENT_KERNELS_CPU_FEW_CHANNELS_H_

#include <memory>
#include <optional>

#include "kernels/cpu/conv_description.h"
#include "kernels/cpu/conv_pass.h"

namespace catchment {

// Returns nothing for what the loops do not do: groups, more than four channels, kernels other than of size
// 3, 5 or 7, an input that is not in plain order, or an output whose channels do not lie in blocks of 8
// or 16.
std::optional<ConvDescription> DescribeFewChannels(const ConvGeometry& g, const dnnl::memory::desc& source,
                                                   const dnnl::memory::desc& output);

std::unique_ptr<ConvPass> MakeFewChannelsBackwardWeights(const ConvGeometry& g,
                                                         const ConvDescription& description,
                                                         const dnnl::memory& source,
                                                         const dnnl::memory& d_output);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_FEW_CHANNELS_H_
