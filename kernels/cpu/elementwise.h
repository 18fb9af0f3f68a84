// Relu, dropout, addition and the fork of an activation, on any of oneDNN's layouts for images, vectors and
// sequences. Where spec.in_place says so the output takes the place of the (first) input.
#ifndef CATCHMENT_KERNELS_CPU_ELEMENTWISE_H_
#define CATCHMENT_KERNELS_CPU_ELEMENTWISE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/activation.h"

namespace catchment {

// gradient = output > 0 ? gradient : 0. Dropout may have worked on the output since: what it zeroed has no
// gradient either.
void ReluBackward(const CpuActivation& activation);

// These throw dnnl::error, as oneDNN does; CpuBackend turns it into a status.
std::unique_ptr<Kernel> MakeCpuRelu(CpuContext* context, const KernelSpec& spec, CpuActivation* input);
std::unique_ptr<Kernel> MakeCpuAdd(CpuContext* context, const KernelSpec& spec, CpuActivation* first,
                                   CpuActivation* second);
std::unique_ptr<Fork> MakeCpuFork(CpuContext* context, CpuActivation* activation, int readers);

// Masks are those of kernels/dropout_mask.h.
// Errors: Unimplemented for a layout that is neither plain, nor channels last, nor blocked by channels.
absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuDropout(CpuContext* context, const KernelSpec& spec,
                                                       CpuActivation* input);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_ELEMENTWISE_H_
