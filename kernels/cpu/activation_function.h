// Gelu, tanh, sigmoid and softmax on oneDNN.
#ifndef CATCHMENT_KERNELS_CPU_ACTIVATION_FUNCTION_H_
#define CATCHMENT_KERNELS_CPU_ACTIVATION_FUNCTION_H_

#include <memory>

#include "kernels/cpu/activation.h"

namespace catchment {

// Both throw dnnl::error, as oneDNN does; CpuBackend turns it into a status.

// Gelu, tanh or sigmoid, in the layout of the input.
std::unique_ptr<Kernel> MakeCpuActivationFunction(CpuContext* context, const KernelSpec& spec,
                                                  const CpuActivation* input);
std::unique_ptr<Kernel> MakeCpuSoftmax(CpuContext* context, const KernelSpec& spec,
                                       const CpuActivation* input);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_ACTIVATION_FUNCTION_H_
