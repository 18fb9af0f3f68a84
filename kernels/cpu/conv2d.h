// Conv2d on oneDNN, and on loops of our own where oneDNN's compiled kernels do badly. How each of the three
// passes is computed (layouts and algorithm) is chosen when the kernel is made: conv_choice.h.
#ifndef CATCHMENT_KERNELS_CPU_CONV2D_H_
#define CATCHMENT_KERNELS_CPU_CONV2D_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/conv_choice.h"

namespace catchment {

// `choices` are those made so far; a new one is added.
// Throws dnnl::error, as oneDNN does; CpuBackend turns it into a status.
// Errors: Unimplemented where oneDNN has no kernel for the shape.
absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuConv2d(CpuContext* context, ConvChoices* choices,
                                                      const KernelSpec& spec, const CpuActivation* input);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_CONV2D_H_
