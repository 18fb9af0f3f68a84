// Batch norm in our own loops, because statistics are of parts of a minibatch (what is padding does not
// count, and ghost batches), and layer norm on oneDNN.
#ifndef CATCHMENT_KERNELS_CPU_NORMALIZATION_H_
#define CATCHMENT_KERNELS_CPU_NORMALIZATION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/activation.h"

namespace catchment {

// In the layout of its input, with the relu that follows it where there is one.
// Throws dnnl::error, as oneDNN does; CpuBackend turns it into a status.
// Errors: Unimplemented for a layout that sample_layout.h does not know.
absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuBatchNorm(CpuContext* context, const KernelSpec& spec,
                                                         const CpuActivation* input);

// Throws dnnl::error, as oneDNN does; CpuBackend turns it into a status.
std::unique_ptr<Kernel> MakeCpuLayerNorm(CpuContext* context, const KernelSpec& spec,
                                         const CpuActivation* input);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_NORMALIZATION_H_
