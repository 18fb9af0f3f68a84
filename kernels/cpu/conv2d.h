// Conv2d on oneDNN. Which algorithm is fastest depends on the shape and differs between the forward pass, the
// data gradient and the weight gradient; each pass takes the one that measured fastest when it was first made
// (direct, winograd, or oneDNN's own choice). A deterministic backend does not measure: direct for fewer than
// 8 input channels, otherwise oneDNN's choice.
#ifndef CATCHMENT_KERNELS_CPU_CONV2D_H_
#define CATCHMENT_KERNELS_CPU_CONV2D_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/activation.h"

namespace catchment {

// Throws dnnl::error, as oneDNN does; CpuBackend turns it into a status.
// Errors: Unimplemented where oneDNN has no kernel for the shape.
absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuConv2d(CpuContext* context, const KernelSpec& spec,
                                                      const CpuActivation* input);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_CONV2D_H_
