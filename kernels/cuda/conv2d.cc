// Convolution as products of matrices (im2col; Chellapilla et al. 2006), over images of height x width x
// channels:
//   patches, rows x K    one row for each output pixel: the K = k k C/groups values of its window
//   weights, F x K       in the same order
//   out = patches weights' + bias      d_weights = d_out' patches      d_patches = d_out weights
// and d_in is gathered from d_patches. Patches are written for a chunk of samples at a time, to scratch
// memory, in the precision of factors. Rows are padded with zeros to a multiple of 16 bytes. With a 1 x 1
// window and stride 1 the patches are the input itself, or with 16 bits its rounded copy, which is made once,
// unless the layer before stores it so.
//
// Memory traffic of a step for each value of the patches: it is written twice and read twice (forward and
// weight gradient), in the 2 or 4 bytes of factors; for the input gradient 4 bytes are written and read,
// since sums are float32.
//
// If cuDNN is found it computes convolutions with larger windows, or with steps, without patches, if the
// channels fill the 16 bytes that tensor cores load. Those in FLOAT32 stay products, since cuDNN may round
// their factors to TF32. In 16 bits, cuDNN's gradient of few weights would leave most of the GPU idle
// (FillsProcessors): it stays a product with patches, whose sum cuBLASLt splits.
#include <algorithm>
#include <optional>

#include "kernels/cuda/convolution.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/factor.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/loops.h"
#include "kernels/cuda/node.h"
#include "kernels/cuda/patches.h"

namespace catchment::cuda {
namespace {

// The passes of a convolution by cuDNN.
struct Convolutions {
  // to_weight is null if that pass is a product with patches, to_input if it is not needed.
  std::unique_ptr<Convolution> forward, to_weight, to_input;

  // Returns nothing if one of them is to be computed with patches.
  static std::optional<Convolutions> Create(Device* device, const CatchmentCudaLayer& layer,
                                            const Window& window, const Tensor& input, const Tensor& output) {
    const int64_t unit = 16 / BytesOf(device->precision());
    const bool fills_units = layer.input.channels % unit == 0 && layer.output.channels % unit == 0;
    if (device->precision() == Precision::kFloat32 || window.is_pointwise() || layer.groups > 1 ||
        !fills_units)
      return std::nullopt;
    const ConvolutionSpec spec = {
        .samples = layer.batch_size,
        .channels = layer.input.channels,
        .in_height = layer.input.height,
        .in_width = layer.input.width,
        .filters = layer.output.channels,
        .out_height = layer.output.height,
        .out_width = layer.output.width,
        .kernel_size = layer.kernel_size,
        .stride = layer.stride,
        .padding = layer.padding,
        .bias = layer.bias != 0,
        .relu = layer.relu != 0,
        .rounds_x = input.is_rounded(),
        .rounds_y = output.is_rounded(),
    };
    std::string why;
    Convolutions made;
    const bool fills = FillsProcessors(device->precision(), spec);
    const auto create = [&](bool wanted, Convolved convolved, std::unique_ptr<Convolution>* pass) {
      if (wanted) *pass = Convolution::Create(device, convolved, spec, &why);
      return !wanted || *pass != nullptr;
    };
    const bool complete = create(true, Convolved::kY, &made.forward) &&
                          create(fills, Convolved::kW, &made.to_weight) &&
                          create(layer.input_gradient != 0, Convolved::kX, &made.to_input);
    device->NoteConvolution(complete, why, fills);
    if (!complete) return std::nullopt;
    return made;
  }
};

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
        pointwise_(window_.is_pointwise()),
        by_cudnn_(Convolutions::Create(device, spec, window_, input, *output)),
        has_patches_(!by_cudnn_ || by_cudnn_->to_weight == nullptr),
        pixels_(spec.output.height * spec.output.width),
        chunk_(pointwise_ || !has_patches_
                   ? spec.batch_size
                   : std::clamp(Device::kMaxPatchValues / (pixels_ * window_.stride_of_rows), int64_t{1},
                                int64_t{spec.batch_size})),
        takes_weight_(Is16Bit(device->precision()) || window_.area() > 1 ||
                      window_.stride_of_rows > window_.row_values()),
        tells_weight_gradient_(window_.area() > 1 && window_.channels > 1),
        weight_(device, takes_weight_ ? filters_ * RowBytes() : 0),
        d_weight_(device, tells_weight_gradient_ ? int64_t{filters_} * window_.stride_of_rows : 0) {
    if ((pointwise_ || by_cudnn_) && !input.is_rounded())
      input_factor_.emplace(device, input.batch * input.area(), window_.in_channels);
    // d_out as a factor, unless it is stored as one, followed by the patches, which their gradient
    // overwrites.
    if (Is16Bit(device->precision()) && !output->is_rounded()) {
      d_out_stride_ = groups_ > 1 ? filters_ : RoundedUp(*device, filters_);
      d_out_bytes_ = (input.batch * pixels_ * d_out_stride_ * int64_t{sizeof(uint16_t)} + 255) / 256 * 256;
    } else {
      d_out_stride_ = filters_;
    }
    if (!has_patches_) {
      device->ReserveScratch(d_out_bytes_);
      return;
    }
    const int64_t patches = chunk_ * pixels_ * window_.stride_of_rows;
    Checked(patches, "a convolution's patches");
    // Without cuDNN the patches' gradient, which is float32, is there, too.
    const int64_t patch_bytes = by_cudnn_ ? BytesOf(device->precision()) : int64_t{sizeof(float)};
    device->ReserveScratch(d_out_bytes_ + (pointwise_ ? 0 : patches * patch_bytes));
    MakeProducts(chunk_, &products_);
    if (const int64_t rest = spec.batch_size % chunk_; rest > 0) MakeProducts(rest, &last_products_);
  }

  void Forward(const Pass&) override {
    if (input_factor_) input_factor_->Take(input_.value);
    if (takes_weight_) TakeWeight();
    if (by_cudnn_) return by_cudnn_->forward->Run(Input(), Weight(0), output->value, Bias(0));
    ForEachChunk([&](int64_t sample, int64_t samples, Products* products) {
      for (int group = 0; group < groups_; ++group) {
        products->forward->Run(Patches(sample, samples, group), Weight(group), Bias(group),
                               Output(sample, group));
      }
    });
  }

  void Backward(const Pass&) override {
    if (!output->is_rounded()) TakeOutputGradient();
    float* const d_weight = tells_weight_gradient_ ? d_weight_.data() : parameters->gradient();
    if (has_patches_) {
      BackwardWithPatches(d_weight);
    } else {
      by_cudnn_->to_weight->Run(Input(), d_weight, OutputGradient(0, 0), nullptr);
    }
    if (by_cudnn_ && input_gradient_)
      by_cudnn_->to_input->Run(input_.gradient, Weight(0), OutputGradient(0, 0), nullptr);
    if (tells_weight_gradient_) TellWeightGradient();
  }

  // The gradient of the weights and, unless cuDNN computes it, that of the input.
  void BackwardWithPatches(float* d_weight) {
    ForEachChunk([&](int64_t sample, int64_t samples, Products* products) {
      for (int group = 0; group < groups_; ++group) {
        const void* const d_out = OutputGradient(sample, group);
        products->to_weight[sample > 0].Run(d_out, Patches(sample, samples, group), nullptr,
                                            d_weight + FirstFilter(group) * d_weight_stride());
        if (products->to_input) BackwardToInput(sample, samples, group, d_out, &*products->to_input);
      }
    });
  }

  // The output's gradient, from which the relu and the bias take theirs, as a factor.
  void TakeOutputGradient() {
    cuda::TakeOutputGradient(device_, *output, filters_, relu_,
                             {d_out_bytes_ > 0 ? device_->scratch() : nullptr, device_->precision()},
                             d_out_stride_, bias_ ? parameters->gradient() + NumWeights() : nullptr);
  }

  // The weights as a factor, in the order of patches.
  void TakeWeight() {
    const int channels = window_.channels, area = window_.area(), row_values = window_.row_values();
    const Divisor by_row(window_.stride_of_rows), by_channels(channels);
    const float* const from = parameters->value();
    const FactorWriter to = {weight_.data(), device_->precision()};
    device_->ForEach(int64_t{filters_} * window_.stride_of_rows, [=] CATCHMENT_ON_DEVICE(int i) {
      int at, channel;
      const int filter = by_row.Divide(i, &at), place = by_channels.Divide(at, &channel);
      to.Write(i, at < row_values ? from[(filter * channels + channel) * area + place] : 0.0f);
    });
  }

  void TellWeightGradient() {
    const int channels = window_.channels, stride = window_.stride_of_rows;
    const Divisor by_area(window_.area()), by_channels(channels);
    const float* const from = d_weight_.data();
    float* const to = parameters->gradient();
    device_->ForEach(NumWeights(), [=] CATCHMENT_ON_DEVICE(int i) {
      int place, channel;
      const int filter = by_channels.Divide(by_area.Divide(i, &place), &channel);
      to[i] = from[static_cast<int64_t>(filter) * stride + place * channels + channel];
    });
  }

 private:
  // The products of a chunk of samples.
  struct Products {
    std::optional<Gemm> forward, to_input;
    std::vector<Gemm> to_weight;  // of the first chunk, and of further ones
  };

  static int64_t NumParameters(const CatchmentCudaLayer& spec) {
    const int64_t weights =
        spec.output.channels * (spec.input.channels / spec.groups) * spec.kernel_size * spec.kernel_size;
    return weights + (spec.bias != 0 ? spec.output.channels : 0);
  }

  int64_t NumWeights() const { return int64_t{filters_} * window_.row_values(); }
  int64_t RowBytes() const { return int64_t{window_.stride_of_rows} * BytesOf(device_->precision()); }
  int64_t FirstFilter(int group) const { return int64_t{group} * (filters_ / groups_); }
  // The values from one row of the weights' gradient to the next.
  int64_t d_weight_stride() const {
    return tells_weight_gradient_ ? window_.stride_of_rows : window_.row_values();
  }
  const void* Weight(int group) const {
    return Offset(*device_, takes_weight_ ? weight_.data() : static_cast<const void*>(parameters->value()),
                  FirstFilter(group) * window_.stride_of_rows);
  }
  const float* Bias(int group) const {
    return bias_ ? parameters->value() + NumWeights() + FirstFilter(group) : nullptr;
  }
  // The whole input as a factor, if it is not read as patches.
  const void* Input() const { return input_factor_ ? input_factor_->data() : input_.value; }
  const void* OutputGradient(int64_t sample, int group) const {
    return Offset(*device_,
                  d_out_bytes_ > 0 ? device_->scratch() : static_cast<const void*>(output->gradient),
                  sample * pixels_ * d_out_stride_ + FirstFilter(group));
  }

  void* Output(int64_t sample, int group) const {
    return reinterpret_cast<char*>(output->value) +
           (sample * pixels_ * filters_ + FirstFilter(group)) * BytesOf(output->storage);
  }

  void MakeProducts(int64_t samples, Products* products) {
    const int64_t rows = samples * pixels_, k = window_.stride_of_rows, f = filters_ / groups_;
    const int64_t chunk_rows = chunk_ * pixels_, bytes = BytesOf(device_->precision());
    constexpr int64_t kFloat = sizeof(float);
    const int64_t out_bytes = BytesOf(output->storage);
    const int out_alignment = AlignmentOf({chunk_rows * filters_ * out_bytes, f * out_bytes});
    const int d_out_alignment = AlignmentOf({chunk_rows * d_out_stride_ * bytes, f * bytes});
    const int weight_alignment = AlignmentOf({f * k * bytes});
    // Pointwise patches, and their gradient, which is the input's, have rows that are not filled up with
    // zeros.
    const int64_t columns = pointwise_ ? window_.channels : k;
    for (const bool accumulate : {false, true}) {
      products->to_weight.emplace_back(
          device_, GemmSpec{.transpose_a = true,
                            .m = f,
                            .n = d_weight_stride(),
                            .k = rows,
                            .lda = d_out_stride_,
                            .ldb = k,
                            .ldc = d_weight_stride(),
                            .accumulate = accumulate,
                            .a_alignment = d_out_alignment,
                            .c_alignment = AlignmentOf({f * d_weight_stride() * kFloat})});
    }
    if (by_cudnn_) return;
    products->forward.emplace(device_, GemmSpec{.transpose_b = true,
                                                .m = rows,
                                                .n = f,
                                                .k = columns,
                                                .lda = k,
                                                .ldb = k,
                                                .ldc = filters_,
                                                .bias = bias_,
                                                .relu = relu_,
                                                .rounds_result = output->is_rounded(),
                                                .b_alignment = weight_alignment,
                                                .c_alignment = out_alignment});
    if (!input_gradient_) return;
    products->to_input.emplace(device_, GemmSpec{.m = rows,
                                                 .n = columns,
                                                 .k = f,
                                                 .lda = d_out_stride_,
                                                 .ldb = k,
                                                 .ldc = columns,
                                                 .rounds_result = pointwise_ && input_.is_rounded(),
                                                 .a_alignment = d_out_alignment,
                                                 .b_alignment = weight_alignment});
  }

  // Calls f(first sample, number of samples, their products).
  template <typename F>
  void ForEachChunk(F f) {
    for (int64_t sample = 0; sample < output->batch; sample += chunk_) {
      const int64_t samples = std::min(chunk_, output->batch - sample);
      f(sample, samples, samples == chunk_ ? &products_ : &last_products_);
    }
  }

  const void* Patches(int64_t sample, int64_t samples, int group) {
    if (pointwise_) return Input();
    const FactorWriter patches = {device_->scratch() + d_out_bytes_, device_->precision()};
    GatherPatches(device_, window_, group, input_, sample, samples, patches);
    return patches.to;
  }

  void BackwardToInput(int64_t sample, int64_t samples, int group, const void* d_out, Gemm* product) {
    // Pointwise products are of all samples.
    if (pointwise_) return product->Run(d_out, Weight(group), nullptr, input_.gradient);
    auto* const d_patches = reinterpret_cast<float*>(device_->scratch() + d_out_bytes_);
    product->Run(d_out, Weight(group), nullptr, d_patches);
    GatherInputGradient(device_, window_, group, input_, sample, samples, d_patches);
  }

  Device* device_;
  const Tensor input_;
  const bool relu_, bias_, input_gradient_;
  const int groups_, filters_;
  const Window window_;
  const bool pointwise_;
  const std::optional<Convolutions> by_cudnn_;
  const bool has_patches_;  // for all passes or, with cuDNN, for the gradient of the weights
  const int64_t pixels_;    // of one sample's output
  const int64_t chunk_;     // samples; the last chunk has the rest
  // True if weights are copied to the order and precision of patches, and if their gradient is copied back.
  const bool takes_weight_, tells_weight_gradient_;
  DeviceArray<char> weight_;                    // a factor: filters x k x k x channels, with rows filled up
  DeviceArray<> d_weight_;                      // as weight_
  std::optional<Factor> input_factor_;          // of pointwise patches, or for cuDNN
  int64_t d_out_stride_ = 0, d_out_bytes_ = 0;  // of scratch memory; 0 bytes: it needs no rounding
  Products products_, last_products_;
};

}  // namespace

std::unique_ptr<Layer> MakeConv2d(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<Conv2d>(device, spec, input);
}

}  // namespace catchment::cuda
