// Convolution as products of matrices (im2col; Chellapilla et al. 2006), over images of height x width x
// channels:
//   patches, rows x K    a row an output pixel, K = k k C/groups values: what its window sees
//   weights, F x K       in the same order
//   out = patches weights' + bias      d_weights = d_out' patches      d_patches = d_out weights
// and d_in gathers from d_patches. Patches are made a chunk of samples at a time, in scratch memory. A 1 x 1
// window with stride 1 needs none: its patches are its input.
#include <algorithm>
#include <optional>

#include "kernels/cuda/device.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/node.h"
#include "kernels/cuda/order.h"
#include "kernels/cuda/relu_gradient.h"
#include "kernels/cuda/sum_columns.h"
#include "kernels/cuda/windows.h"

namespace catchment::cuda {
namespace {

constexpr int64_t kMostPatchValues = int64_t{1} << 27;  // 512 MiB

struct Window {
  int in_height, in_width, in_channels;  // all groups
  int out_height, out_width;
  int size, stride, padding;
  int channels;  // of one group

  int row_values() const { return size * size * channels; }
};

// patches = what `rows` windows of group `group` see; `in` is where the first one's sample begins.
void Gather(Device* device, const Window& w, int group, int64_t rows, const float* in, float* patches) {
  const int first_channel = group * w.channels;
  device->ForEach(rows * w.row_values(), [=] CATCHMENT_ON_DEVICE(int i) {
    const int c = i % w.channels, kx = i / w.channels % w.size, ky = i / w.channels / w.size % w.size;
    const int row = i / (w.channels * w.size * w.size);
    const int x = row % w.out_width * w.stride + kx - w.padding;
    const int y = row / w.out_width % w.out_height * w.stride + ky - w.padding;
    const int sample = row / w.out_width / w.out_height;
    const bool inside = x >= 0 && x < w.in_width && y >= 0 && y < w.in_height;
    patches[i] =
        inside ? in[((sample * w.in_height + y) * w.in_width + x) * w.in_channels + first_channel + c] : 0.0f;
  });
}

// d_in = for every input value the sum over the windows that see it.
void GatherBack(Device* device, const Window& w, int group, int64_t samples, const float* d_patches,
                float* d_in) {
  const int first_channel = group * w.channels, row_values = w.row_values();
  device->ForEach(samples * w.in_height * w.in_width * w.channels, [=] CATCHMENT_ON_DEVICE(int i) {
    const int c = i % w.channels, x = i / w.channels % w.in_width;
    const int y = i / w.channels / w.in_width % w.in_height,
              sample = i / w.channels / w.in_width / w.in_height;
    float sum = 0;
    ForEachWindowOver(w, y, x, [&](int out_y, int out_x, int ky, int kx) {
      const int row = (sample * w.out_height + out_y) * w.out_width + out_x;
      sum += d_patches[static_cast<int64_t>(row) * row_values + (ky * w.size + kx) * w.channels + c];
    });
    d_in[((sample * w.in_height + y) * w.in_width + x) * w.in_channels + first_channel + c] = sum;
  });
}

// The most samples at a time that divide the batch and whose patches are not too many.
int64_t ChunkOf(int64_t batch, int64_t patch_values) {
  int64_t chunk = std::clamp(kMostPatchValues / std::max<int64_t>(patch_values, 1), int64_t{1}, batch);
  while (batch % chunk != 0) --chunk;
  return chunk;
}

class Conv2d final : public Layer {
 public:
  Conv2d(Device* device, const CatchmentCudaLayer& spec, const Tensor& input)
      : Layer(device, spec, NumParameters(spec)),
        device_(device),
        input_(input),
        relu_(spec.relu != 0),
        bias_(spec.bias != 0),
        input_gradient_(spec.input_gradient != 0),
        groups_(static_cast<int>(spec.groups)),
        filters_(static_cast<int>(spec.output.channels)),
        window_{static_cast<int>(spec.input.height),
                static_cast<int>(spec.input.width),
                static_cast<int>(spec.input.channels),
                static_cast<int>(spec.output.height),
                static_cast<int>(spec.output.width),
                static_cast<int>(spec.kernel_size),
                static_cast<int>(spec.stride),
                static_cast<int>(spec.padding),
                static_cast<int>(spec.input.channels / spec.groups)},
        direct_(groups_ == 1 && window_.size == 1 && window_.stride == 1 && window_.padding == 0),
        pixels_(spec.output.height * spec.output.width),
        chunk_(direct_ ? spec.batch_size : ChunkOf(spec.batch_size, pixels_ * window_.row_values())),
        weight_(device, int64_t{filters_} * window_.row_values()),
        d_weight_(device, weight_.size()) {
    const int64_t rows = chunk_ * pixels_, k = window_.row_values(), f = filters_ / groups_;
    if (!direct_) device->ReserveScratch(Checked(rows * k, "a convolution's patches"));
    const int alignment = groups_ == 1 && chunk_ == spec.batch_size ? 256 : 4;
    forward_.emplace(device, GemmSpec{.transpose_b = true,
                                      .m = rows,
                                      .n = f,
                                      .k = k,
                                      .lda = k,
                                      .ldb = k,
                                      .ldc = filters_,
                                      .bias = bias_,
                                      .relu = relu_,
                                      .alignment = alignment});
    for (const bool accumulate : {false, true}) {
      to_weight_.emplace_back(device, GemmSpec{.transpose_a = true,
                                               .m = f,
                                               .n = k,
                                               .k = rows,
                                               .lda = filters_,
                                               .ldb = k,
                                               .ldc = k,
                                               .accumulate = accumulate,
                                               .alignment = alignment});
    }
    if (input_gradient_) {
      to_input_.emplace(
          device,
          GemmSpec{.m = rows, .n = k, .k = f, .lda = filters_, .ldb = k, .ldc = k, .alignment = alignment});
    }
  }

  void Forward(const Pass&) override {
    ToDeviceOrder(device_, filters_, window_.channels, window_.size * window_.size, parameters->value(),
                  weight_.data());
    ForEachChunk([&](int64_t sample, int group) {
      const float* const bias = bias_ ? parameters->value() + weight_.size() + FirstFilter(group) : nullptr;
      forward_->Run(Patches(sample, group), weight_.data() + FirstWeight(group), bias,
                    output->value + sample * pixels_ * filters_ + FirstFilter(group));
    });
  }

  void Backward(const Pass&) override {
    if (relu_) MaskByRelu(device_, output);
    if (bias_) {
      SumColumns(device_, output->batch * pixels_, filters_, output->gradient,
                 parameters->gradient() + weight_.size());
    }
    ForEachChunk([&](int64_t sample, int group) {
      const float* const d_out = output->gradient + sample * pixels_ * filters_ + FirstFilter(group);
      to_weight_[sample > 0].Run(d_out, Patches(sample, group), nullptr,
                                 d_weight_.data() + FirstWeight(group));
      if (input_gradient_) BackwardToInput(sample, group, d_out);
    });
    ToHostOrder(device_, filters_, window_.channels, window_.size * window_.size, d_weight_.data(),
                parameters->gradient());
  }

 private:
  static int64_t NumParameters(const CatchmentCudaLayer& spec) {
    const int64_t weights =
        spec.output.channels * (spec.input.channels / spec.groups) * spec.kernel_size * spec.kernel_size;
    return weights + (spec.bias != 0 ? spec.output.channels : 0);
  }

  int64_t FirstFilter(int group) const { return int64_t{group} * (filters_ / groups_); }
  int64_t FirstWeight(int group) const { return FirstFilter(group) * window_.row_values(); }

  template <typename F>
  void ForEachChunk(F f) {
    for (int64_t sample = 0; sample < output->batch; sample += chunk_) {
      for (int group = 0; group < groups_; ++group) f(sample, group);
    }
  }

  const float* Patches(int64_t sample, int group) {
    const float* const in = input_.value + sample * input_.sample_size();
    if (direct_) return in;
    Gather(device_, window_, group, chunk_ * pixels_, in, device_->scratch());
    return device_->scratch();
  }

  void BackwardToInput(int64_t sample, int group, const float* d_out) {
    float* const d_in = input_.gradient + sample * input_.sample_size();
    float* const d_patches = direct_ ? d_in : device_->scratch();
    to_input_->Run(d_out, weight_.data() + FirstWeight(group), nullptr, d_patches);
    if (!direct_) GatherBack(device_, window_, group, chunk_, d_patches, d_in);
  }

  Device* device_;
  const Tensor input_;
  const bool relu_, bias_, input_gradient_;
  const int groups_, filters_;
  const Window window_;
  const bool direct_;
  const int64_t pixels_;             // of one sample's output
  const int64_t chunk_;              // samples
  DeviceArray<> weight_, d_weight_;  // filters x k x k x channels
  std::optional<Gemm> forward_, to_input_;
  std::vector<Gemm> to_weight_;  // of the first chunk, and of further ones
};

}  // namespace

std::unique_ptr<Layer> MakeConv2d(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<Conv2d>(device, spec, input);
}

}  // namespace catchment::cuda
