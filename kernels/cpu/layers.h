// The layers on the CPU, with oneDNN or with loops of our own. Each source file implements one kind of layer,
// or a family of kinds, and explains at its top how it computes it.
//
// Errors: these functions throw dnnl::error, as oneDNN does; CpuBackend turns it into a status. Those that
// return a StatusOr return Unimplemented for a shape or a memory layout that they cannot handle.
#ifndef CATCHMENT_KERNELS_CPU_LAYERS_H_
#define CATCHMENT_KERNELS_CPU_LAYERS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/activation.h"

namespace catchment {

struct ConvChoices;  // conv_choice.h

// conv2d.cc. `choices` holds the choices made so far, and receives a new one.
absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuConv2d(CpuContext* context, ConvChoices* choices,
                                                      const KernelSpec& spec, const CpuActivation* input);

// dense.cc
std::unique_ptr<Kernel> MakeCpuDense(CpuContext* context, const KernelSpec& spec, const CpuActivation* input);

// lstm.cc
std::unique_ptr<Kernel> MakeCpuLstm(CpuContext* context, const KernelSpec& spec, const CpuActivation* input);

// pool.cc. MakeCpuPool makes max_pool and average_pool.
std::unique_ptr<Kernel> MakeCpuPool(CpuContext* context, const KernelSpec& spec, const CpuActivation* input);
absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuGlobalAveragePool(CpuContext* context, const KernelSpec& spec,
                                                                 const CpuActivation* input);

// batch_norm.cc. The output has the layout of the input, and the kernel applies the relu that follows it.
absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuBatchNorm(CpuContext* context, const KernelSpec& spec,
                                                         const CpuActivation* input);

// layer_norm.cc
std::unique_ptr<Kernel> MakeCpuLayerNorm(CpuContext* context, const KernelSpec& spec,
                                         const CpuActivation* input);

// activation_function.cc. MakeCpuActivationFunction makes gelu, tanh and sigmoid, in the layout of the input.
std::unique_ptr<Kernel> MakeCpuActivationFunction(CpuContext* context, const KernelSpec& spec,
                                                  const CpuActivation* input);
std::unique_ptr<Kernel> MakeCpuSoftmax(CpuContext* context, const KernelSpec& spec,
                                       const CpuActivation* input);

// elementwise.cc, on any of oneDNN's layouts for images, vectors and sequences. With spec.in_place the output
// overwrites the (first) input. The masks of dropout are those of kernels/dropout_mask.h.
std::unique_ptr<Kernel> MakeCpuRelu(CpuContext* context, const KernelSpec& spec, CpuActivation* input);
std::unique_ptr<Kernel> MakeCpuAdd(CpuContext* context, const KernelSpec& spec, CpuActivation* first,
                                   CpuActivation* second);
absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuDropout(CpuContext* context, const KernelSpec& spec,
                                                       CpuActivation* input);
std::unique_ptr<Fork> MakeCpuFork(CpuContext* context, CpuActivation* activation, int readers);
// Computes gradient = output > 0 ? gradient : 0 for a kernel that applied relu to its output. Dropout may
// have changed the output since then: a value that it set to zero has no gradient either.
void ReluBackward(const CpuActivation& activation);

// loss.cc
std::unique_ptr<Loss> MakeCpuLoss(CpuContext* context, const LossSpec& spec, const CpuActivation* outputs);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_LAYERS_H_
