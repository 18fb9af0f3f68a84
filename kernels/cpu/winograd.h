// Winograd's convolution F(4x4, 3x3) for AVX2, for kernels of size 3 with stride 1; oneDNN has such kernels
// for AVX-512 only. An output tile of 4 x 4 values takes 36 products for each pair of channels instead of
// 144.
//
//   forward         Y  = A' [ sum over channels (G g G') * (B' d B) ] A     d: an input tile of 6 x 6 values
//   gradient of d   the same convolution of the output's gradient with the kernel turned by 180 degrees
//   gradient of g   dg = G' [ sum over tiles (B' d B) * (A dY A') ] G       * is element-wise
//
// Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016, arXiv:1509.09308.
// Shapes: the channels of input and output are in blocks of eight; other layouts are copied.
#ifndef CATCHMENT_KERNELS_CPU_WINOGRAD_H_
#define CATCHMENT_KERNELS_CPU_WINOGRAD_H_

#include <memory>
#include <optional>

#include "kernels/cpu/conv_description.h"
#include "kernels/cpu/conv_pass.h"

namespace catchment {

// Returns nothing for groups, another kernel size or stride, numbers of channels that are not multiples of
// eight, or if the transformed weights would need too much memory.
std::optional<ConvDescription> DescribeTiledWinograd(const ConvGeometry& g, bool relu);

std::unique_ptr<ConvForward> MakeWinogradForward(CpuContext* context, const ConvGeometry& g,
                                                 const ConvDescription& description,
                                                 const dnnl::memory& source);
std::unique_ptr<ConvPass> MakeWinogradBackwardWeights(CpuContext* context, const ConvGeometry& g,
                                                      const ConvDescription& description,
                                                      const dnnl::memory& source,
                                                      const dnnl::memory& d_output);
std::unique_ptr<ConvPass> MakeWinogradBackwardData(CpuContext* context, const ConvGeometry& g,
                                                   const ConvDescription& description,
                                                   const dnnl::memory& d_source,
                                                   const dnnl::memory& d_output);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_WINOGRAD_H_
