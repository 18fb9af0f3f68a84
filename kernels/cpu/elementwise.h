// Relu and dropout, in place on activations of any of oneDNN's layouts for images and vectors.
#ifndef CATCHMENT_KERNELS_CPU_ELEMENTWISE_H_
#define CATCHMENT_KERNELS_CPU_ELEMENTWISE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/activation.h"

namespace catchment {

// gradient = output > 0 ? gradient : 0. Dropout may have worked on the output since: what it zeroed has no
// gradient either.
void ReluBackward(const CpuActivation& activation);

std::unique_ptr<Kernel> MakeCpuRelu(CpuActivation* activation);

// Masks are those of kernels/dropout_mask.h.
// Errors: Unimplemented for a layout that is neither plain, nor channels last, nor blocked by channels.
absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuDropout(const KernelSpec& spec, CpuActivation* activation);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_ELEMENTWISE_H_
