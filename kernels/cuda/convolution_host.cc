// kernels/cuda/convolution.h on the CPU, for tests: there is no cuDNN.
#include "kernels/cuda/convolution.h"

namespace catchment::cuda {

struct Convolution::Plan {};

std::unique_ptr<Convolution> Convolution::Create(Device*, Convolved, const ConvolutionSpec&, std::string*) {
  return nullptr;
}
Convolution::~Convolution() = default;
void Convolution::Run(const void*, const void*, const void*, const float*) {}

}  // namespace catchment::cuda
