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
#include "kernels/cuda/normalization.h"

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
        scale_(device, MostGroups() * channels_),
        variance_(device, channels_),
        d_bias_(device, MostGroups() * channels_),
        d_weight_(device, MostGroups() * channels_),
        statistics_(device, 2 * channels_) {
    output.tensor()->gradient_may_be_shared = true;
    output.tensor()->normalizer = &normalizer_;
  }

  void Forward(const Pass& pass) override {
    const bool given = pass.mode == kScoring;
    WithPackWidth<4>(channels_, [&](auto width) {
      if (pass.mode == kGathering) {
        // Over all samples together, regardless of ghost batches.
        Measure<width()>(0, 0, int64_t{pass.samples} * area_);
        Tell(pass.statistics);
      }
      if (given) {
        Take(pass.statistics);
      } else {
        ForEachGroup(pass,
                     [&](int group, int64_t first, int64_t rows) { Measure<width()>(group, first, rows); });
      }
      normalizer_.of_pass = {.x = {input_.value, input_.storage},
                             .mean = mean_.data(),
                             .scale = scale_.data(),
                             .weight = parameters->value(),
                             .bias = parameters->value() + channels_,
                             .channels = channels_,
                             .groups = given ? 1 : Groups(pass),
                             .group_values = int64_t{ghost_} * area_ * channels_,
                             .relu = relu_};
      if (!normalizer_.is_taken) Normalize<width()>();
    });
  }

  void Backward(const Pass& pass) override {
    WithPackWidth<4>(channels_, [&](auto width) {
      ForEachGroup(
          pass, [&](int group, int64_t first, int64_t rows) { SumGradients<width()>(group, first, rows); });
      ToInput<width()>(pass);
    });
  }

  // Computes mean and variance of the rows first .. first + rows - 1 in one pass, from the sums of d and d^2,
  // where d is the difference from the first row. That row is a sample of the same values, so no precision is
  // lost if the mean is large.
  template <int kWidth>
  void Measure(int group, int64_t first, int64_t rows) {
    const int channels = channels_;
    const float epsilon = epsilon_, share = 1.0f / static_cast<float>(rows);
    const FactorReader x = {input_.value, input_.storage};
    const int64_t begin = first * channels;
    float *const mean = mean_.data() + group * channels, *const scale = scale_.data() + group * channels;
    float* const variance = variance_.data();
    device_->SumRows<2, kWidth>(
        rows, channels,
        [=] CATCHMENT_ON_DEVICE(int r, int c, Pack<kWidth>* sums) {
          const auto values = x.Read<kWidth>(begin + int64_t{r} * channels + c),
                     origin = x.Read<kWidth>(begin + c);
          for (int k = 0; k < kWidth; ++k) {
            const float d = values.at[k] - origin.at[k];
            sums[0].at[k] += d;
            sums[1].at[k] += d * d;
          }
        },
        [=] CATCHMENT_ON_DEVICE(int c, const float* sums) {
          const float d = share * sums[0], v = fmaxf(share * sums[1] - d * d, 0.0f);
          mean[c] = x.Read<1>(begin + c).at[0] + d;
          variance[c] = v;
          scale[c] = 1 / sqrtf(v + epsilon);
        });
  }

  template <int kWidth>
  void Normalize() {
    const NormalizedPacks<kWidth> normalized(normalizer_.of_pass);
    const FactorWriter y = {output->value, output->storage};
    device_->ForEach(output->size() / kWidth,
                     [=] CATCHMENT_ON_DEVICE(int i) { y.Write(int64_t{i} * kWidth, normalized(i)); });
  }

  // Sums d_bias and d_weight of a group, and adds them to the parameters' gradient; the first group begins
  // it.
  template <int kWidth>
  void SumGradients(int group, int64_t first, int64_t rows) {
    const int channels = channels_;
    const bool relu = relu_, begins = group == 0;
    const FactorReader x = {input_.value, input_.storage}, d_y = {output->gradient, output->storage};
    const int64_t begin_of_group = first * channels;
    const float *const mean = mean_.data() + group * channels, *const scale =
                                                                   scale_.data() + group * channels;
    const float *const weight = parameters->value(), *const bias = weight + channels;
    float *const d_bias = d_bias_.data() + group * channels, *const d_weight =
                                                                 d_weight_.data() + group * channels;
    float* const gradient = parameters->gradient();
    device_->SumRows<2, kWidth>(
        rows, channels,
        [=] CATCHMENT_ON_DEVICE(int r, int c, Pack<kWidth>* sums) {
          const int64_t i = begin_of_group + int64_t{r} * channels + c;
          const auto values = x.Read<kWidth>(i), gradients = d_y.Read<kWidth>(i);
          const auto m = LoadPack<kWidth>(mean + c), f = LoadPack<kWidth>(scale + c);
          const auto w = LoadPack<kWidth>(weight + c), b = LoadPack<kWidth>(bias + c);
          for (int k = 0; k < kWidth; ++k) {
            const float h = Normalized(values.at[k], m.at[k], f.at[k]);
            const float d = relu && !(NormOutput(h, w.at[k], b.at[k]) > 0) ? 0.0f : gradients.at[k];
            sums[0].at[k] += d;
            sums[1].at[k] += d * h;
          }
        },
        [=] CATCHMENT_ON_DEVICE(int c, const float* sums) {
          d_bias[c] = sums[0];
          d_weight[c] = sums[1];
          gradient[c] = (begins ? 0.0f : gradient[c]) + sums[1];
          gradient[channels + c] = (begins ? 0.0f : gradient[channels + c]) + sums[0];
        });
  }

  template <int kWidth>
  void ToInput(const Pass& pass) {
    const int channels = channels_, last_group = Groups(pass) - 1;
    const Divisor by_channels(channels / kWidth), by_group(GroupPacks<kWidth>());
    const int packs = static_cast<int>(int64_t{pass.samples} * area_ * channels / kWidth);
    // One over the number of rows of each group but the last, and of the last.
    const float share = 1.0f / static_cast<float>(ghost_ * area_);
    const float last_share = 1.0f / static_cast<float>((pass.samples - last_group * ghost_) * area_);
    const bool relu = relu_;
    const FactorReader x = {input_.value, input_.storage}, d_y = {output->gradient, output->storage};
    const float *const weight = parameters->value(), *const bias = weight + channels;
    const float *const mean = mean_.data(), *const scale = scale_.data();
    const float *const d_weight = d_weight_.data(), *const d_bias = d_bias_.data();
    const FactorWriter d_x = {input_.gradient, input_.storage};
    device_->ForEach(input_.size() / kWidth, [=] CATCHMENT_ON_DEVICE(int i) {
      Pack<kWidth> result = {};
      if (i < packs) {
        const int c = i % by_channels * kWidth, group = i / by_group, s = group * channels + c;
        const float part = group < last_group ? share : last_share;
        const int64_t at = int64_t{i} * kWidth;
        const auto values = x.Read<kWidth>(at), gradients = d_y.Read<kWidth>(at);
        const auto m = LoadPack<kWidth>(mean + s), f = LoadPack<kWidth>(scale + s);
        const auto w = LoadPack<kWidth>(weight + c), b = LoadPack<kWidth>(bias + c);
        const auto sum = LoadPack<kWidth>(d_bias + s), sum_h = LoadPack<kWidth>(d_weight + s);
        for (int k = 0; k < kWidth; ++k) {
          const float h = Normalized(values.at[k], m.at[k], f.at[k]);
          const float d = relu && !(NormOutput(h, w.at[k], b.at[k]) > 0) ? 0.0f : gradients.at[k];
          result.at[k] = w.at[k] * f.at[k] * (d - part * (sum.at[k] + h * sum_h.at[k]));
        }
      }
      d_x.Write(int64_t{i} * kWidth, result);
    });
  }

 private:
  int64_t MostGroups() const { return (input_.batch + ghost_ - 1) / ghost_; }
  int Groups(const Pass& pass) const { return (pass.samples + ghost_ - 1) / ghost_; }
  // Returns the packs of a group, at most those of the activation.
  template <int kWidth>
  int64_t GroupPacks() const {
    return int64_t{ghost_} * area_ * channels_ / kWidth;
  }

  // Calls f(group, its first row, its number of rows); a row is a pixel.
  template <typename F>
  void ForEachGroup(const Pass& pass, F f) {
    for (int group = 0; group < Groups(pass); ++group) {
      const int64_t first = int64_t{group} * ghost_;
      f(group, first * area_, std::min<int64_t>(ghost_, pass.samples - first) * area_);
    }
  }

  void Take(const float* statistics) {
    std::copy_n(statistics, channels_, statistics_.data());
    std::transform(statistics + channels_, statistics + 2 * channels_, statistics_.data() + channels_,
                   [this](float variance) { return 1 / std::sqrt(variance + epsilon_); });
    device_->CopyIn(mean_.data(), statistics_.data(), channels_ * sizeof(float));
    device_->CopyIn(scale_.data(), statistics_.data() + channels_, channels_ * sizeof(float));
  }

  void Tell(float* statistics) {
    device_->CopyOut(statistics_.data(), mean_.data(), channels_ * sizeof(float));
    device_->Await(
        device_->CopyOut(statistics_.data() + channels_, variance_.data(), channels_ * sizeof(float)));
    std::copy_n(statistics_.data(), 2 * channels_, statistics);
  }

  Device* device_;
  const Tensor input_;
  const bool relu_;
  const float epsilon_;
  const int channels_, area_, ghost_;
  DeviceArray<> mean_, scale_;       // groups x channels; scale is 1 / sqrt(variance + epsilon)
  DeviceArray<> variance_;           // of the group that was measured last
  DeviceArray<> d_bias_, d_weight_;  // groups x channels
  PinnedArray<> statistics_;
  Normalizer normalizer_;
};

}  // namespace

std::unique_ptr<Layer> MakeBatchNorm(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<BatchNorm>(device, spec, input);
}

}  // namespace catchment::cuda
