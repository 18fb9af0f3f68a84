// Ioffe and Szegedy 2015, arXiv:1502.03167, with ghost batches (Hoffer et al. 2017, arXiv:1705.08741), and
// the relu that follows. Of m values of a channel in a ghost batch:
//   h = (x - mean) / sqrt(variance + epsilon)          y = weight h + bias
//   d_bias = sum dy          d_weight = sum dy h
//   dx = weight / sqrt(variance + epsilon) (dy - d_bias / m - h d_weight / m)
#include <algorithm>
#include <cmath>

#include "kernels/cuda/device.h"
#include "kernels/cuda/loops.h"
#include "kernels/cuda/node.h"

namespace catchment::cuda {
namespace {

class BatchNorm final : public Layer {
 public:
  BatchNorm(Device* device, const CatchmentCudaLayer& spec, const Tensor& input)
      : Layer(device, spec, 2 * spec.input.channels),
        device_(device),
        input_(input),
        relu_(spec.relu != 0),
        epsilon_(spec.epsilon),
        channels_(static_cast<int>(spec.input.channels)),
        area_(static_cast<int>(input.area())),
        ghost_(
            static_cast<int>(spec.ghost_batch == 0 ? input.batch : std::min(spec.ghost_batch, input.batch))),
        mean_(device, MostGroups() * channels_),
        variance_(device, MostGroups() * channels_),
        d_bias_(device, MostGroups() * channels_),
        d_weight_(device, MostGroups() * channels_),
        statistics_(device, 2 * channels_) {}

  void Forward(const Pass& pass) override {
    const bool given = pass.mode == kScoring;
    if (given) {
      Take(pass.statistics);
    } else {
      ForEachGroup(pass, [&](int group, int64_t first, int64_t rows) { Measure(group, first, rows); });
    }
    if (pass.mode == kGathering) Tell(pass);
    Normalize(given ? 1 : Groups(pass));
  }

  void Backward(const Pass& pass) override {
    if (relu_) MaskByRelu(device_, output);
    ForEachGroup(pass, [&](int group, int64_t first, int64_t rows) { SumGradients(group, first, rows); });
    SumGroups(Groups(pass));
    ToInput(pass);
  }

  // Computes mean and variance of the rows first .. first + rows - 1.
  void Measure(int group, int64_t first, int64_t rows) {
    const int channels = channels_;
    const float* const x = input_.value + first * channels;
    float *const mean = mean_.data() + group * channels, *const variance =
                                                             variance_.data() + group * channels;
    const float share = 1.0f / static_cast<float>(rows);
    device_->SumRows(
        rows, channels, [=] CATCHMENT_ON_DEVICE(int r, int c) { return share * x[r * channels + c]; }, mean);
    device_->SumRows(
        rows, channels,
        [=] CATCHMENT_ON_DEVICE(int r, int c) {
          const float d = x[r * channels + c] - mean[c];
          return share * d * d;
        },
        variance);
  }

  void Normalize(int groups) {
    const int channels = channels_, group_values = ghost_ * area_ * channels;
    const bool relu = relu_;
    const float epsilon = epsilon_;
    const float *const x = input_.value, *const mean = mean_.data(), *const variance = variance_.data();
    const float *const weight = parameters->value(), *const bias = weight + channels;
    float* const y = output->value;
    device_->ForEach(output->size(), [=] CATCHMENT_ON_DEVICE(int i) {
      const int c = i % channels, group = i / group_values;
      const int s = (group < groups ? group : groups - 1) * channels + c;
      const float value = (x[i] - mean[s]) / sqrtf(variance[s] + epsilon) * weight[c] + bias[c];
      y[i] = relu && !(value > 0) ? 0.0f : value;
    });
  }

  void SumGradients(int group, int64_t first, int64_t rows) {
    const int channels = channels_;
    const float epsilon = epsilon_;
    const float *const x = input_.value + first * channels, *const d_y = output->gradient + first * channels;
    const float *const mean = mean_.data() + group * channels, *const variance =
                                                                   variance_.data() + group * channels;
    device_->SumRows(
        rows, channels, [=] CATCHMENT_ON_DEVICE(int r, int c) { return d_y[r * channels + c]; },
        d_bias_.data() + group * channels);
    device_->SumRows(
        rows, channels,
        [=] CATCHMENT_ON_DEVICE(int r, int c) {
          const int i = r * channels + c;
          return d_y[i] * (x[i] - mean[c]) / sqrtf(variance[c] + epsilon);
        },
        d_weight_.data() + group * channels);
  }

  void SumGroups(int groups) {
    const int channels = channels_;
    const float *const d_weight = d_weight_.data(), *const d_bias = d_bias_.data();
    float* const gradient = parameters->gradient();
    device_->ForEach(channels, [=] CATCHMENT_ON_DEVICE(int c) {
      float weight = 0, bias = 0;
      for (int g = 0; g < groups; ++g) {
        weight += d_weight[g * channels + c];
        bias += d_bias[g * channels + c];
      }
      gradient[c] = weight;
      gradient[channels + c] = bias;
    });
  }

  void ToInput(const Pass& pass) {
    const int channels = channels_, group_values = ghost_ * area_ * channels;
    const int values = pass.samples * area_ * channels;
    const float epsilon = epsilon_;
    const float *const x = input_.value, *const d_y = output->gradient, *const weight = parameters->value();
    const float *const mean = mean_.data(), *const variance = variance_.data();
    const float *const d_weight = d_weight_.data(), *const d_bias = d_bias_.data();
    float* const d_x = input_.gradient;
    device_->ForEach(input_.size(), [=] CATCHMENT_ON_DEVICE(int i) {
      if (i >= values) {
        d_x[i] = 0;
        return;
      }
      const int c = i % channels, group = i / group_values, s = group * channels + c;
      const int end = (group + 1) * group_values;
      const float m = static_cast<float>(((end < values ? end : values) - group * group_values) / channels);
      const float scale = 1 / sqrtf(variance[s] + epsilon);
      const float h = (x[i] - mean[s]) * scale;
      d_x[i] = weight[c] * scale * (d_y[i] - d_bias[s] / m - h * d_weight[s] / m);
    });
  }

 private:
  int64_t MostGroups() const { return (input_.batch + ghost_ - 1) / ghost_; }
  int Groups(const Pass& pass) const { return (pass.samples + ghost_ - 1) / ghost_; }

  // Calls f(group, its first row, its number of rows); a row is a pixel.
  template <typename F>
  void ForEachGroup(const Pass& pass, F f) {
    for (int group = 0; group < Groups(pass); ++group) {
      const int64_t first = int64_t{group} * ghost_;
      f(group, first * area_, std::min<int64_t>(ghost_, pass.samples - first) * area_);
    }
  }

  void Take(const float* statistics) {
    std::copy_n(statistics, 2 * channels_, statistics_.data());
    device_->CopyIn(mean_.data(), statistics_.data(), channels_ * sizeof(float));
    device_->CopyIn(variance_.data(), statistics_.data() + channels_, channels_ * sizeof(float));
  }

  // Computes them over all samples together, regardless of ghost batches.
  void Tell(const Pass& pass) {
    if (Groups(pass) > 1) Measure(0, 0, int64_t{pass.samples} * area_);
    device_->CopyOut(statistics_.data(), mean_.data(), channels_ * sizeof(float));
    device_->Await(
        device_->CopyOut(statistics_.data() + channels_, variance_.data(), channels_ * sizeof(float)));
    std::copy_n(statistics_.data(), 2 * channels_, pass.statistics);
    if (Groups(pass) > 1)
      ForEachGroup(pass, [&](int g, int64_t first, int64_t rows) { Measure(g, first, rows); });
  }

  Device* device_;
  const Tensor input_;
  const bool relu_;
  const float epsilon_;
  const int channels_, area_, ghost_;
  DeviceArray<> mean_, variance_, d_bias_, d_weight_;  // groups x channels
  PinnedArray<> statistics_;
};

}  // namespace

std::unique_ptr<Layer> MakeBatchNorm(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<BatchNorm>(device, spec, input);
}

}  // namespace catchment::cuda
