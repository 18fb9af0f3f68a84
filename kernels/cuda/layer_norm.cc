// Ba et al. 2016, arXiv:1607.06450. The formulas are those of batch_norm.cc, with the mean and variance of a
// row: the values of a sample, or of a step of a sequence.
#include <cmath>

#include "kernels/cuda/device.h"
#include "kernels/cuda/node.h"

namespace catchment::cuda {
namespace {

// Returns the index of the weight of value i of a row: parameters are in the host's order.
struct Place {
  int channels, area;
  bool image;

  CATCHMENT_ON_DEVICE int operator()(int i) const { return image ? i % channels * area + i / channels : i; }
};

class LayerNorm final : public Layer {
 public:
  LayerNorm(Device* device, const CatchmentCudaLayer& spec, const Tensor& input)
      : Layer(device, spec, 2 * Width(input)),
        device_(device),
        input_(input),
        epsilon_(spec.epsilon),
        width_(static_cast<int>(Width(input))),
        rows_(input.size() / width_),
        place_{static_cast<int>(input.shape.channels), static_cast<int>(input.area()), input.is_image()},
        mean_(device, rows_),
        scale_(device, rows_),
        sums_(device, 2 * width_) {}

  void Forward(const Pass&) override {
    const int width = width_;
    const float epsilon = epsilon_;
    const Place place = place_;
    const float *const x = input_.value, *const weight = parameters->value(), *const bias = weight + width;
    float *const y = output->value, *const means = mean_.data(), *const scales = scale_.data();
    device_->ForEach(rows_, [=] CATCHMENT_ON_DEVICE(int row) {
      const float* const values = x + row * width;
      float mean = 0, variance = 0;
      for (int i = 0; i < width; ++i) mean += values[i];
      mean /= width;
      for (int i = 0; i < width; ++i) variance += (values[i] - mean) * (values[i] - mean);
      means[row] = mean;
      scales[row] = 1 / sqrtf(variance / width + epsilon);
    });
    device_->ForEach(input_.size(), [=] CATCHMENT_ON_DEVICE(int i) {
      const int row = i / width, at = place(i % width);
      y[i] = (x[i] - means[row]) * scales[row] * weight[at] + bias[at];
    });
  }

  void Backward(const Pass&) override {
    ToParameters();
    const int width = width_;
    const Place place = place_;
    const float *const x = input_.value, *const weight = parameters->value(), *const d_y = output->gradient;
    const float *const means = mean_.data(), *const scales = scale_.data();
    float* const d_x = input_.gradient;
    device_->ForEach(rows_, [=] CATCHMENT_ON_DEVICE(int row) {
      const float mean = means[row], scale = scales[row];
      const float *const values = x + row * width, *const d_values = d_y + row * width;
      float sum = 0, sum_h = 0;
      for (int i = 0; i < width; ++i) {
        const float d = d_values[i] * weight[place(i)];
        sum += d;
        sum_h += d * (values[i] - mean) * scale;
      }
      for (int i = 0; i < width; ++i) {
        const float h = (values[i] - mean) * scale;
        d_x[row * width + i] = scale * (d_values[i] * weight[place(i)] - sum / width - h * sum_h / width);
      }
    });
  }

  void ToParameters() {
    const int width = width_;
    const Place place = place_;
    const float *const x = input_.value, *const d_y = output->gradient;
    const float *const means = mean_.data(), *const scales = scale_.data();
    float *const sums = sums_.data(), *const gradient = parameters->gradient();
    device_->SumRows(
        rows_, width,
        [=] CATCHMENT_ON_DEVICE(int r, int c) {
          return d_y[r * width + c] * (x[r * width + c] - means[r]) * scales[r];
        },
        sums);
    device_->SumRows(
        rows_, width, [=] CATCHMENT_ON_DEVICE(int r, int c) { return d_y[r * width + c]; }, sums + width);
    device_->ForEach(2 * width, [=] CATCHMENT_ON_DEVICE(int i) {
      gradient[i / width * width + place(i % width)] = sums[i];
    });
  }

 private:
  static int64_t Width(const Tensor& input) {
    return input.shape.kind == 2 ? input.shape.width : input.sample_size();
  }

  Device* device_;
  const Tensor input_;
  const float epsilon_;
  const int width_;
  const int64_t rows_;
  const Place place_;
  DeviceArray<> mean_, scale_;  // of each row
  DeviceArray<> sums_;          // gradients of weight and bias in the device's order
};

}  // namespace

std::unique_ptr<Layer> MakeLayerNorm(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<LayerNorm>(device, spec, input);
}

}  // namespace catchment::cuda
