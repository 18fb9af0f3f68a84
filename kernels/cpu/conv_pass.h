// The three passes of a convolution, each in the layouts of its description; values in other layouts are
// copied as part of the pass.
#ifndef CATCHMENT_KERNELS_CPU_CONV_PASS_H_
#define CATCHMENT_KERNELS_CPU_CONV_PASS_H_

#include <memory>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/conv_description.h"

namespace catchment {

class ConvPass {
 public:
  virtual ~ConvPass() = default;
  // Reads the layer's parameters (the forward pass and the gradient of the input), or writes their gradient
  // (=).
  virtual void Run(const float* parameters, float* gradient) = 0;
};

// A forward pass. The output has the layout of the description.
class ConvForward : public ConvPass {
 public:
  // Returns the memory that Run has read the input from: the activation's own, or the copy in another layout.
  virtual const dnnl::memory& source() const = 0;
  virtual CpuActivation* output() = 0;
};

// Create the passes. All memory must outlive the pass. They throw dnnl::error, as oneDNN does.
std::unique_ptr<ConvForward> MakeConvForward(CpuContext* context, const ConvGeometry& g,
                                             const ConvDescription& description, const dnnl::memory& source);
std::unique_ptr<ConvPass> MakeConvBackwardWeights(CpuContext* context, const ConvGeometry& g,
                                                  const ConvDescription& description,
                                                  const dnnl::memory& source, const dnnl::memory& d_output);
std::unique_ptr<ConvPass> MakeConvBackwardData(CpuContext* context, const ConvGeometry& g,
                                               const ConvDescription& description,
                                               const dnnl::memory& d_source, const dnnl::memory& d_output);

// Makes the loops of few_channels.cc, which DescribeFewChannels has described.
std::unique_ptr<ConvPass> MakeFewChannelsBackwardWeights(const ConvGeometry& g,
                                                         const ConvDescription& description,
                                                         const dnnl::memory& source,
                                                         const dnnl::memory& d_output);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_CONV_PASS_H_
