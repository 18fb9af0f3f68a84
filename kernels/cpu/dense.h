// The dense layer, out = in weight^T + bias, on oneDNN's sgemm. Weights and their gradient stay in the flat
// vector as they are: a copy in a layout of oneDNN's choice is no faster.
//
// A large layer is computed in parts, each a range of its units, so that the weights of one part are
// exchanged with the servers while another part is computed. In most models with dense layers a single one of
// them holds most of the parameters.
#ifndef CATCHMENT_KERNELS_CPU_DENSE_H_
#define CATCHMENT_KERNELS_CPU_DENSE_H_

#include <memory>

#include "kernels/cpu/activation.h"

namespace catchment {

// Throws dnnl::error, as oneDNN does; CpuBackend turns it into a status.
std::unique_ptr<Kernel> MakeCpuDense(CpuContext* context, const KernelSpec& spec, const CpuActivation* input);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_DENSE_H_
