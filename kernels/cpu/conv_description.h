// Describes what would be run for one pass of a convolution. A description is cheap: it allocates nothing,
// and names the implementation and the layouts that it needs.
#ifndef CATCHMENT_KERNELS_CPU_CONV_DESCRIPTION_H_
#define CATCHMENT_KERNELS_CPU_CONV_DESCRIPTION_H_

#include <optional>
#include <string>

#include "dnnl.hpp"
#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_geometry.h"

namespace catchment {

enum class ConvAlgorithm {
  kDirect,         // oneDNN's, without a transform
  kWinograd,       // oneDNN's
  kOneDnn,         // the one that oneDNN prefers
  kTiledWinograd,  // ours: winograd.h
  kFewChannels,    // ours: few_channels.h
};

enum class ConvLayout {
  kAny,          // the one that oneDNN prefers; with fewer channels than a block has, padded to a block
  kGiven,        // the layout of the activation, so that no copy is needed
  kPlain,        // N x C x H x W, in which oneDNN multiplies patches and weights
  kChannelsLast  // N x H x W x C
};

// One way to compute a pass.
struct ConvMethod {
  ConvAlgorithm algorithm;
  ConvLayout source;  // of the input or its gradient
  ConvLayout output;  // of the output or its gradient
};

struct ConvDescription {
  bool is_reference() const { return IsReferenceLoop(implementation); }
  // Returns true for a matrix product with patches.
  bool is_product() const { return implementation.find("gemm") != std::string::npos; }
  bool operator==(const ConvDescription& other) const {
    return implementation == other.implementation && source == other.source && weight == other.weight &&
           output == other.output;
  }

  ConvAlgorithm algorithm;
  dnnl::primitive_desc primitive;  // empty if the algorithm is ours
  std::string implementation;      // such as "jit:avx2"
  dnnl::memory::desc source, weight, bias, output;
  bool relu = false;  // after a forward pass
};

// Describe each pass. They return nothing if oneDNN cannot compute it. `source` and `output` are the layouts
// that kGiven means.
std::optional<ConvDescription> DescribeForward(CpuContext* context, const ConvGeometry& g, ConvMethod method,
                                               const dnnl::memory::desc& source, bool relu);
std::optional<ConvDescription> DescribeBackwardWeights(CpuContext* context, const ConvGeometry& g,
                                                       ConvMethod method, const dnnl::memory::desc& source,
                                                       const dnnl::memory::desc& output);
std::optional<ConvDescription> DescribeBackwardData(CpuContext* context, const ConvGeometry& g,
                                                    ConvMethod method, const dnnl::memory::desc& source,
                                                    const dnnl::memory::desc& output);

// Describes the loops of few_channels.cc. Returns nothing for unsupported convolutions: groups, more than
// four channels, kernel sizes other than 3, 5 and 7, an input that is not in plain order, or an output whose
// channels are not in blocks of 8 or 16.
std::optional<ConvDescription> DescribeFewChannels(const ConvGeometry& g, const dnnl::memory::desc& source,
                                                   const dnnl::memory::desc& output);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_CONV_DESCRIPTION_H_
