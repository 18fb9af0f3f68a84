// A convolution on the device without patches, by cuDNN.
#ifndef CATCHMENT_KERNELS_CUDA_CONVOLUTION_H_
#define CATCHMENT_KERNELS_CUDA_CONVOLUTION_H_

#include <memory>
#include <string>

#include "kernels/cuda/convolution_graph.h"
#include "kernels/cuda/device.h"

namespace catchment::cuda {

class Convolution {
 public:
  // Returns null if there is no cuDNN, or it has no way to compute this one. `how` receives the library's
  // name, or why not.
  static std::unique_ptr<Convolution> Create(Device* device, Convolved convolved, const ConvolutionSpec& spec,
                                             std::string* how);
  ~Convolution();

  // Computes one of x, w and y, which is float32; the others are factors of the device's precision, except
  // `bias`, which is float32 and null without one. All are aligned to 16 bytes but the bias.
  void Run(const void* x, const void* w, const void* y, const float* bias);

 private:
  struct Plan;
  explicit Convolution(std::unique_ptr<Plan> plan);

  std::unique_ptr<Plan> plan_;
};

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_CONVOLUTION_H_
