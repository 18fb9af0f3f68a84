// Max and average pooling on oneDNN, in the layout of its input, or in another one where oneDNN has only
// reference loops for that. Of the maximum a workspace keeps which value
// of a window was the largest. And the average of whole channels, in our own loops.
#ifndef CATCHMENT_KERNELS_CPU_POOL_H_
#define CATCHMENT_KERNELS_CPU_POOL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/activation.h"

namespace catchment {

// Throws dnnl::error, as oneDNN does; CpuBackend turns it into a status.
std::unique_ptr<Kernel> MakeCpuPool(CpuContext* context, const KernelSpec& spec, const CpuActivation* input);

// Errors: Unimplemented for a layout that sample_layout.h does not know.
absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuGlobalAveragePool(CpuContext* context, const KernelSpec& spec,
                                                                 const CpuActivation* input);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_POOL_H_
