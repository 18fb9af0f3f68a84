// Softmax cross-entropy over the logits, in our own loops: the logits are few.
#ifndef CATCHMENT_KERNELS_CPU_LOSS_H_
#define CATCHMENT_KERNELS_CPU_LOSS_H_

#include <memory>

#include "kernels/cpu/activation.h"

namespace catchment {

// Throws dnnl::error, as oneDNN does; CpuBackend turns it into a status.
std::unique_ptr<Loss> MakeCpuLoss(CpuContext* context, int num_classes, int batch_size,
                                  const CpuActivation* logits);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_LOSS_H_
