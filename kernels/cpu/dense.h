// The dense layer on oneDNN's inner product. Weights and their gradient stay in the flat vector as they are:
// on its matrix-multiplication path oneDNN is as fast with PyTorch's layout as with its own, and no copy of
// the weights is made.
#ifndef CATCHMENT_KERNELS_CPU_DENSE_H_
#define CATCHMENT_KERNELS_CPU_DENSE_H_

#include <memory>

#include "kernels/cpu/activation.h"

namespace catchment {

// Throws dnnl::error, as oneDNN does; CpuBackend turns it into a status.
std::unique_ptr<Kernel> MakeCpuDense(CpuContext* context, const KernelSpec& spec, const CpuActivation* input);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_DENSE_H_
