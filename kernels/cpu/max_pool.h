// Max pooling on oneDNN, in the layout of its input; a workspace keeps which value of a window was the
// largest.
#ifndef CATCHMENT_KERNELS_CPU_MAX_POOL_H_
#define CATCHMENT_KERNELS_CPU_MAX_POOL_H_

#include <memory>

#include "kernels/cpu/activation.h"

namespace catchment {

// Throws dnnl::error, as oneDNN does; CpuBackend turns it into a status.
std::unique_ptr<Kernel> MakeCpuMaxPool(CpuContext* context, const KernelSpec& spec,
                                       const CpuActivation* input);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_MAX_POOL_H_
