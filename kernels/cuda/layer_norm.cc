// Ba et al. 2016, arXiv:1607.06450. The formulas are those of batch_norm.cc, with the mean and variance of a
// row: the values of a sample, or of a step of a sequence.
#include <cmath>

#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/node.h"

namespace catchment::cuda {
namespace {

// Returns the index of the weight of value i of a row: parameters are in the host's order.
struct Place {
  Divisor by_channels;
  int area;
  bool image;

  CATCHMENT_ON_DEVICE int operator()(int i) const {
    if (!image) return i;
    int channel;
    const int place = by_channels.Divide(i, &channel);
    return channel * area + place;
  }
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
        place_{Divisor(input.shape.channels), static_cast<int>(input.area()), input.is_image()},
        mean_(device, rows_),
        scale_(device, rows_) {}

  void Forward(const Pass&) override {
    const int width = width_;
    const float epsilon = epsilon_;
    const Place place = place_;
    const float *const x = input_.value, *const weight = parameters->value(), *const bias = weight + width;
    float *const y = output->value, *const means = mean_.data(), *const scales = scale_.data();
    device_->ForEachRow(rows_, width, [=] CATCHMENT_ON_DEVICE(int row, const Team& team) {
      const float* const values = x + row * width;
      float sum = 0, squares = 0;
      for (int i = team.rank; i < width; i += team.size) sum += values[i];
      const float mean = team.Sum(sum) / width;
      for (int i = team.rank; i < width; i += team.size) squares += (values[i] - mean) * (values[i] - mean);
      const float scale = 1 / sqrtf(team.Sum(squares) / width + epsilon);
      for (int i = team.rank; i < width; i += team.size) {
        const int at = place(i);
        y[row * width + i] = (values[i] - mean) * scale * weight[at] + bias[at];
      }
      if (team.rank > 0) return;
      means[row] = mean;
      scales[row] = scale;
    });
  }

  void Backward(const Pass&) override {
    WithPackWidth<4>(width_, [&](auto width) { ToParameters<width()>(); });
    const int width = width_;
    const Place place = place_;
    const float *const x = input_.value, *const weight = parameters->value(), *const d_y = output->gradient;
    const float *const means = mean_.data(), *const scales = scale_.data();
    float* const d_x = input_.gradient;
    device_->ForEachRow(rows_, width, [=] CATCHMENT_ON_DEVICE(int row, const Team& team) {
      const float mean = means[row], scale = scales[row];
      const float *const values = x + row * width, *const d_values = d_y + row * width;
      float part = 0, part_h = 0;
      for (int i = team.rank; i < width; i += team.size) {
        const float d = d_values[i] * weight[place(i)];
        part += d;
        part_h += d * (values[i] - mean) * scale;
      }
      const float sum = team.Sum(part), sum_h = team.Sum(part_h);
      for (int i = team.rank; i < width; i += team.size) {
        const float h = (values[i] - mean) * scale;
        d_x[row * width + i] = scale * (d_values[i] * weight[place(i)] - sum / width - h * sum_h / width);
      }
    });
  }

  template <int kWidth>
  void ToParameters() {
    const int width = width_;
    const Place place = place_;
    const float *const x = input_.value, *const d_y = output->gradient;
    const float *const means = mean_.data(), *const scales = scale_.data();
    float* const gradient = parameters->gradient();
    device_->SumRows<2, kWidth>(
        rows_, width,
        [=] CATCHMENT_ON_DEVICE(int r, int c, Pack<kWidth>* sums) {
          const int64_t i = int64_t{r} * width + c;
          const auto values = LoadPack<kWidth>(x + i), gradients = LoadPack<kWidth>(d_y + i);
          for (int k = 0; k < kWidth; ++k) {
            sums[0].at[k] += gradients.at[k] * (values.at[k] - means[r]) * scales[r];
            sums[1].at[k] += gradients.at[k];
          }
        },
        [=] CATCHMENT_ON_DEVICE(int c, const float* sums) {
          gradient[place(c)] = sums[0];
          gradient[width + place(c)] = sums[1];
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
};

}  // namespace

std::unique_ptr<Layer> MakeLayerNorm(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<LayerNorm>(device, spec, input);
}

}  // namespace catchment::cuda
