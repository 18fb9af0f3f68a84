// An LSTM layer (Hochreiter and Schmidhuber 1997), over whole sequences, in PyTorch's definition: with the
// gates (i, f, g, o) = W_ih x_t + b_ih + W_hh h_{t-1} + b_hh, each of `units` rows,
//   c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g)
//   h_t = sigmoid(o) tanh(c_t)                        h = c = 0 before the first step
//
// A step's gates are one product: of the weights, with the biases joined to them, and the columns
// [x_t, h_{t-1}, 1] of the samples. Samples are independent of each other, so each thread takes some of them
// through all steps. Inside, the values of a step lie unit by unit (units x samples), so that loops over them
// are long whatever the number of units is.
#ifndef CATCHMENT_KERNELS_CPU_LSTM_H_
#define CATCHMENT_KERNELS_CPU_LSTM_H_

#include <memory>

#include "kernels/cpu/activation.h"

namespace catchment {

// Throws dnnl::error, as oneDNN does; CpuBackend turns it into a status.
std::unique_ptr<Kernel> MakeCpuLstm(CpuContext* context, const KernelSpec& spec, const CpuActivation* input);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_LSTM_H_
