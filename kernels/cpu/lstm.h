// An LSTM layer (Hochreiter and Schmidhuber 1997), over whole sequences, in PyTorch's definition: with the
// gates (i, f, g, o) = W_ih x_t + b_ih + W_hh h_{t-1} + b_hh, each of `units` rows,
//   c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g) ;  h_t = sigmoid(o) tanh(c_t) ;  h = c = 0 before the first
//   step
//
// The inputs' part of all steps is one matrix product; what follows the recurrence is one for each step and
// our own loops. Backward, weights' gradients are again one product over all steps. Inside, values lie step
// by step (steps x samples x values).
#ifndef CATCHMENT_KERNELS_CPU_LSTM_H_
#define CATCHMENT_KERNELS_CPU_LSTM_H_

#include <memory>

#include "kernels/cpu/activation.h"

namespace catchment {

// Throws dnnl::error, as oneDNN does; CpuBackend turns it into a status.
std::unique_ptr<Kernel> MakeCpuLstm(CpuContext* context, const KernelSpec& spec, const CpuActivation* input);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_LSTM_H_
