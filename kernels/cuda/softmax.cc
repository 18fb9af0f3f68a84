// exp(x) / sum of exp(x), over a vector or over each step of a sequence: y ; dx = y (dy - sum of y dy).
#include <cmath>

#include "kernels/cuda/device.h"
#include "kernels/cuda/node.h"

namespace catchment::cuda {
namespace {

class Softmax final : public Layer {
 public:
  Softmax(Device* device, const CatchmentCudaLayer& spec, const Tensor& input)
      : Layer(device, spec, 0),
        device_(device),
        input_(input),
        width_(static_cast<int>(input.shape.kind == 2 ? input.shape.width : input.sample_size())) {}

  void Forward(const Pass&) override {
    const int width = width_;
    const float* const in = input_.value;
    float* const out = output->value;
    device_->ForEachRow(input_.size() / width, width, [=] CATCHMENT_ON_DEVICE(int row, const Team& team) {
      const float* const x = in + row * width;
      float* const y = out + row * width;
      float largest = -INFINITY, sum = 0;
      for (int i = team.rank; i < width; i += team.size) largest = fmaxf(largest, x[i]);
      largest = team.Max(largest);
      for (int i = team.rank; i < width; i += team.size) sum += y[i] = expf(x[i] - largest);
      sum = team.Sum(sum);
      for (int i = team.rank; i < width; i += team.size) y[i] /= sum;
    });
  }

  void Backward(const Pass&) override {
    const int width = width_;
    const float *const out = output->value, *const d_out = output->gradient;
    float* const d_in = input_.gradient;
    device_->ForEachRow(input_.size() / width, width, [=] CATCHMENT_ON_DEVICE(int row, const Team& team) {
      const float *const y = out + row * width, *const d_y = d_out + row * width;
      float part = 0;
      for (int i = team.rank; i < width; i += team.size) part += y[i] * d_y[i];
      const float sum = team.Sum(part);
      for (int i = team.rank; i < width; i += team.size) d_in[row * width + i] = y[i] * (d_y[i] - sum);
    });
  }

 private:
  Device* device_;
  const Tensor input_;
  const int width_;
};

}  // namespace

std::unique_ptr<Layer> MakeSoftmax(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<Softmax>(device, spec, input);
}

}  // namespace catchment::cuda
