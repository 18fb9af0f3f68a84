// The losses, in our own loops: the outputs are few.
#ifndef CATCHMENT_KERNELS_CPU_LOSS_H_
#define CATCHMENT_KERNELS_CPU_LOSS_H_

#include <memory>

#include "kernels/cpu/activation.h"

namespace catchment {

// Throws dnnl::error, as oneDNN does; CpuBackend turns it into a status.
std::unique_ptr<Loss> MakeCpuLoss(CpuContext* context, const LossSpec& spec, const CpuActivation* outputs);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_LOSS_H_
