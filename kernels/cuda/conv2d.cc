// Convolution as products of matrices (im2col; Chellapilla et al. 2006), over images of height x width x
// channels:
//   patches, rows x K    one row for each output pixel: the K = k k C/groups values of its window
//   weights, F x K       in the same order
//   out = patches weights' + bias      d_weights = d_out' patches      d_patches = d_out weights
// and d_in is gathered from d_patches. Patches are written for a chunk of samples at a time, to scratch
// memory, in the precision of factors. Rows are padded with zeros to a multiple of 16 bytes. With a 1 x 1
// window, stride 1 and 32 bits the patches are the input itself.
//
// Memory traffic of a step for each value of the patches: it is written twice and read twice (forward and
// weight gradient), in the 2 or 4 bytes of factors; for the input gradient 4 bytes are written and read,
// since sums are float32.
#include <algorithm>
#include <optional>

#include "kernels/cuda/device.h"
#include "kernels/cuda/factor.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/loops.h"
#include "kernels/cuda/node.h"

namespace catchment::cuda {
namespace {

struct Window {
  int in_height, in_width, in_channels;  // all groups
  int out_height, out_width;
  int size, stride, padding;
  int channels;        // of one group
  int stride_of_rows;  // values from a row of patches, or weights, to the next

  int row_values() const { return size * size * channels; }
  bool is_pointwise() const { return channels == in_channels && size == 1 && stride == 1 && padding == 0; }
};

// Sets patches to the values of `rows` windows of group `group`; `in` is the beginning of the first window's
// sample.
void Gather(Device* device, const Window& w, int group, int64_t rows, const float* in,
            const FactorWriter& patches) {
  const int first_channel = group * w.channels, row_values = w.row_values();
  device->ForEach(rows * w.stride_of_rows, [=] CATCHMENT_ON_DEVICE(int i) {
    const int row = i / w.stride_of_rows, at = i % w.stride_of_rows;
    const int c = at % w.channels, kx = at / w.channels % w.size, ky = at / w.channels / w.size;
    const int x = row % w.out_width * w.stride + kx - w.padding;
    const int y = row / w.out_width % w.out_height * w.stride + ky - w.padding;
    const int sample = row / w.out_width / w.out_height;
    const bool inside = at < row_values && x >= 0 && x < w.in_width && y >= 0 && y < w.in_height;
    const int place = ((sample * w.in_height + y) * w.in_width + x) * w.in_channels + first_channel + c;
    patches.Write(i, inside ? in[place] : 0.0f);
  });
}

// Sets d_in, for every input value, to the sum over the windows that contain it.
void GatherBack(Device* device, const Window& w, int group, int64_t samples, const float* d_patches,
                float* d_in) {
  const int first_channel = group * w.channels, row_values = w.stride_of_rows;
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

// Returns the largest number of samples that divides the batch and whose patches are at most
// kMostPatchValues.
int64_t ChunkOf(int64_t batch, int64_t patch_values) {
  int64_t chunk =
      std::clamp(Device::kMostPatchValues / std::max<int64_t>(patch_values, 1), int64_t{1}, batch);
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
        window_(WindowOf(*device, spec)),
        direct_(window_.is_pointwise() && !Is16Bit(device->precision())),
        pixels_(spec.output.height * spec.output.width),
        chunk_(direct_ ? spec.batch_size : ChunkOf(spec.batch_size, pixels_ * window_.stride_of_rows)),
        weight_(device, filters_ * RowBytes()),
        d_weight_(device, int64_t{filters_} * window_.stride_of_rows) {
    const int64_t rows = chunk_ * pixels_, k = window_.stride_of_rows, f = filters_ / groups_;
    const int bytes = BytesOf(device->precision());
    Checked(rows * k, "a convolution's patches");
    // d_out as a factor, followed by the patches, which their gradient overwrites.
    if (Is16Bit(device->precision())) d_out_bytes_ = (rows * filters_ * bytes + 255) / 256 * 256;
    device->ReserveScratch(d_out_bytes_ + (direct_ ? 0 : rows * k * sizeof(float)));
    const int out_alignment =
        AlignmentOf({rows * filters_ * int64_t{sizeof(float)}, f * int64_t{sizeof(float)}});
    const int d_out_alignment = d_out_bytes_ > 0 ? AlignmentOf({f * bytes}) : out_alignment;
    const int weight_alignment = AlignmentOf({f * k * bytes});
    forward_.emplace(device, GemmSpec{.transpose_b = true,
                                      .m = rows,
                                      .n = f,
                                      .k = k,
                                      .lda = k,
                                      .ldb = k,
                                      .ldc = filters_,
                                      .bias = bias_,
                                      .relu = relu_,
                                      .b_alignment = weight_alignment,
                                      .c_alignment = out_alignment});
    for (const bool accumulate : {false, true}) {
      to_weight_.emplace_back(device, GemmSpec{.transpose_a = true,
                                               .m = f,
                                               .n = k,
                                               .k = rows,
                                               .lda = filters_,
                                               .ldb = k,
                                               .ldc = k,
                                               .accumulate = accumulate,
                                               .a_alignment = d_out_alignment,
                                               .c_alignment = AlignmentOf({f * k * int64_t{sizeof(float)}})});
    }
    if (input_gradient_) {
      const int64_t d_in_bytes = chunk_ * input.sample_size() * int64_t{sizeof(float)};
      to_input_.emplace(device,
                        GemmSpec{.m = rows,
                                 .n = k,
                                 .k = f,
                                 .lda = filters_,
                                 .ldb = k,
                                 .ldc = k,
                                 .a_alignment = d_out_alignment,
                                 .b_alignment = weight_alignment,
                                 .c_alignment = window_.is_pointwise() ? AlignmentOf({d_in_bytes}) : 256});
    }
  }

  void Forward(const Pass&) override {
    TakeWeight();
    ForEachChunk([&](int64_t sample, int group) {
      const float* const bias = bias_ ? parameters->value() + NumWeights() + FirstFilter(group) : nullptr;
      forward_->Run(Patches(sample, group), Weight(group), bias,
                    output->value + sample * pixels_ * filters_ + FirstFilter(group));
    });
  }

  void Backward(const Pass&) override {
    if (relu_) MaskByRelu(device_, output);
    if (bias_) {
      SumColumns(device_, output->batch * pixels_, filters_, output->gradient,
                 parameters->gradient() + NumWeights());
    }
    for (int64_t sample = 0; sample < output->batch; sample += chunk_) {
      const void* const d_out = OutputGradient(sample);
      for (int group = 0; group < groups_; ++group) {
        const void* const d_group = Offset(*device_, d_out, FirstFilter(group));
        to_weight_[sample > 0].Run(d_group, Patches(sample, group), nullptr,
                                   d_weight_.data() + FirstWeight(group));
        if (input_gradient_) BackwardToInput(sample, group, d_group);
      }
    }
    TellWeightGradient();
  }

  // The weights as a factor, in the order of patches.
  void TakeWeight() {
    const int area = window_.size * window_.size, channels = window_.channels;
    const int row_values = window_.row_values(), stride = window_.stride_of_rows;
    const float* const from = parameters->value();
    const FactorWriter to = {weight_.data(), device_->precision()};
    device_->ForEach(int64_t{filters_} * stride, [=] CATCHMENT_ON_DEVICE(int i) {
      const int filter = i / stride, at = i % stride;
      to.Write(i, at < row_values ? from[(filter * channels + at % channels) * area + at / channels] : 0.0f);
    });
  }

  void TellWeightGradient() {
    const int area = window_.size * window_.size, channels = window_.channels;
    const int stride = window_.stride_of_rows;
    const float* const from = d_weight_.data();
    float* const to = parameters->gradient();
    device_->ForEach(NumWeights(), [=] CATCHMENT_ON_DEVICE(int i) {
      const int place = i % area, channel = i / area % channels, filter = i / area / channels;
      to[i] = from[static_cast<int64_t>(filter) * stride + place * channels + channel];
    });
  }

  // Returns the output's gradient of a chunk in the form of a factor of a product.
  const void* OutputGradient(int64_t sample) {
    const float* const d_out = output->gradient + sample * pixels_ * filters_;
    if (d_out_bytes_ == 0) return d_out;
    const FactorWriter rounded = {device_->scratch(), device_->precision()};
    device_->ForEach(chunk_ * pixels_ * filters_,
                     [=] CATCHMENT_ON_DEVICE(int i) { rounded.Write(i, d_out[i]); });
    return rounded.to;
  }

 private:
  static int64_t NumParameters(const CatchmentCudaLayer& spec) {
    const int64_t weights =
        spec.output.channels * (spec.input.channels / spec.groups) * spec.kernel_size * spec.kernel_size;
    return weights + (spec.bias != 0 ? spec.output.channels : 0);
  }

  static Window WindowOf(const Device& device, const CatchmentCudaLayer& spec) {
    Window window = {static_cast<int>(spec.input.height),
                     static_cast<int>(spec.input.width),
                     static_cast<int>(spec.input.channels),
                     static_cast<int>(spec.output.height),
                     static_cast<int>(spec.output.width),
                     static_cast<int>(spec.kernel_size),
                     static_cast<int>(spec.stride),
                     static_cast<int>(spec.padding),
                     static_cast<int>(spec.input.channels / spec.groups),
                     0};
    // The gradient of pointwise patches is that of the input, which has no padding.
    window.stride_of_rows =
        window.is_pointwise() ? window.channels : static_cast<int>(RoundedUp(device, window.row_values()));
    return window;
  }

  int64_t NumWeights() const { return int64_t{filters_} * window_.row_values(); }
  int64_t RowBytes() const { return int64_t{window_.stride_of_rows} * BytesOf(device_->precision()); }
  int64_t FirstFilter(int group) const { return int64_t{group} * (filters_ / groups_); }
  int64_t FirstWeight(int group) const { return FirstFilter(group) * window_.stride_of_rows; }
  const void* Weight(int group) const { return Offset(*device_, weight_.data(), FirstWeight(group)); }

  template <typename F>
  void ForEachChunk(F f) {
    for (int64_t sample = 0; sample < output->batch; sample += chunk_) {
      for (int group = 0; group < groups_; ++group) f(sample, group);
    }
  }

  const void* Patches(int64_t sample, int group) {
    const float* const in = input_.value + sample * input_.sample_size();
    if (direct_) return in;
    const FactorWriter patches = {device_->scratch() + d_out_bytes_, device_->precision()};
    Gather(device_, window_, group, chunk_ * pixels_, in, patches);
    return patches.to;
  }

  void BackwardToInput(int64_t sample, int group, const void* d_out) {
    float* const d_in = input_.gradient + sample * input_.sample_size();
    float* const d_patches =
        window_.is_pointwise() ? d_in : reinterpret_cast<float*>(device_->scratch() + d_out_bytes_);
    to_input_->Run(d_out, Weight(group), nullptr, d_patches);
    if (d_patches != d_in) GatherBack(device_, window_, group, chunk_, d_patches, d_in);
  }

  Device* device_;
  const Tensor input_;
  const bool relu_, bias_, input_gradient_;
  const int groups_, filters_;
  const Window window_;
  const bool direct_;         // patches are the input itself
  const int64_t pixels_;      // of one sample's output
  const int64_t chunk_;       // samples
  DeviceArray<char> weight_;  // a factor: filters x k x k x channels, with rows filled up
  DeviceArray<> d_weight_;    // as weight_
  int64_t d_out_bytes_ = 0;   // of scratch memory; 0: it needs no rounding
  std::optional<Gemm> forward_, to_input_;
  std::vector<Gemm> to_weight_;  // of the first chunk, and of further ones
};

}  // namespace

std::unique_ptr<Layer> MakeConv2d(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<Conv2d>(device, spec, input);
}

}  // namespace catchment::cuda
