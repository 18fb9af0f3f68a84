// The gradient of the weights of a convolution over an input of few channels, such as the first layer's over
// gray or color images. oneDNN's kernels for AVX2 need eight channels side by side; these loops read the
// input in plain order, and eight filters at a time from the blocked gradient of the output.
#include <immintrin.h>

#include <algorithm>
#include <vector>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/conv_description.h"
#include "kernels/cpu/conv_pass.h"
#include "kernels/cpu/parallel.h"

namespace catchment {
namespace {

using dnnl::memory;

constexpr int64_t kLanes = 8;  // the filters that are computed together
constexpr int64_t kMaxChannels = 4;
constexpr int64_t kMaxSize = 7;

// The planes of one step: one channel of one input with its padding, and eight channels of the output's
// gradient.
struct Planes {
  const float* x;  // rows of `x_width` values
  const float* d;  // `d_step` values at each position, of which the first eight are used
  int64_t x_width, d_step;
  int64_t height, width;  // of the output
  int64_t stride;
};

// Adds to sums[row * kColumns + column], over all positions, x at (row, column) of the position's patch times
// d.
template <int kRows, int kColumns>
void AddProducts(const Planes& planes, const float* x, __m256* sums) {
  __m256 sum[kRows * kColumns];
  for (__m256& s : sum) s = _mm256_setzero_ps();
  const float* d = planes.d;
  for (int64_t i = 0; i < planes.height; ++i) {
    const float* patch = x + i * planes.stride * planes.x_width;
    for (int64_t j = 0; j < planes.width; ++j, d += planes.d_step, patch += planes.stride) {
      const __m256 gradient = _mm256_loadu_ps(d);
#pragma GCC unroll 3
      for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 7
        for (int column = 0; column < kColumns; ++column) {
          const __m256 value = _mm256_broadcast_ss(patch + row * planes.x_width + column);
          __m256& s = sum[row * kColumns + column];
          s = _mm256_fmadd_ps(value, gradient, s);
        }
      }
    }
  }
  for (int i = 0; i < kRows * kColumns; ++i) sums[i] = _mm256_add_ps(sums[i], sum[i]);
}

template <int kSize>
void AddRows(const Planes& planes, __m256* sums) {
  for (int row = 0; row < kSize; ++row) {
    AddProducts<1, kSize>(planes, planes.x + row * planes.x_width, sums + row * kSize);
  }
}

void AddKernel(int64_t size, const Planes& planes, __m256* sums) {
  if (size == 3) return AddProducts<3, 3>(planes, planes.x, sums);
  if (size == 5) return AddRows<5>(planes, sums);
  AddRows<7>(planes, sums);
}

__m256 SumOf(const Planes& planes) {
  __m256 sum = _mm256_setzero_ps();
  for (int64_t i = 0; i < planes.height * planes.width; ++i) {
    sum = _mm256_add_ps(sum, _mm256_loadu_ps(planes.d + i * planes.d_step));
  }
  return sum;
}

class FewChannelsBackwardWeights final : public ConvPass {
 public:
  FewChannelsBackwardWeights(const ConvGeometry& g, const SampleLayout& layout, const memory& source,
                             const memory& d_output)
      : g_(g),
        layout_(layout),
        source_(source),
        d_output_(d_output),
        padded_height_(g.source[2] + 2 * g.padding[0]),
        padded_width_(g.source[3] + 2 * g.padding[1]),
        padded_(g.source[0] * g.source[1] * padded_height_ * padded_width_) {}

  void Run(const float*, float* gradient) override {
    if (g_.padding[0] > 0) Pad();
    const int64_t groups = (g_.output[1] + kLanes - 1) / kLanes;
    ParallelFor(groups, 1, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) RunFilters(group * kLanes, gradient);
    });
  }

 private:
  const float* source_data() const { return static_cast<const float*>(source_.get_data_handle()); }

  // The borders stay 0.
  void Pad() {
    const int64_t rows = g_.source[2], width = g_.source[3], padding = g_.padding[0];
    const float* const in = source_data();
    ParallelFor(g_.source[0] * g_.source[1], 16, [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        for (int64_t row = 0; row < rows; ++row) {
          const float* const from = in + (plane * rows + row) * width;
          std::copy(from, from + width,
                    padded_.data() + (plane * padded_height_ + row + padding) * padded_width_ + padding);
        }
      }
    });
  }

  // Writes the gradient of the filters first .. first + 7 that exist.
  void RunFilters(int64_t first, float* gradient) const {
    const int64_t size = g_.kernel_size(), channels = g_.source[1], taps = size * size;
    const float* const x = g_.padding[0] > 0 ? padded_.data() : source_data();
    const float* const d = static_cast<const float*>(d_output_.get_data_handle());
    __m256 sums[kMaxChannels * kMaxSize * kMaxSize], bias = _mm256_setzero_ps();
    std::fill_n(sums, channels * taps, _mm256_setzero_ps());
    for (int64_t sample = 0; sample < g_.source[0]; ++sample) {
      Planes planes = {.d = d + sample * layout_.stored() +
                            first / layout_.block * layout_.block * layout_.positions + first % layout_.block,
                       .x_width = padded_width_,
                       .d_step = layout_.block,
                       .height = g_.output[2],
                       .width = g_.output[3],
                       .stride = g_.stride[0]};
      bias = _mm256_add_ps(bias, SumOf(planes));
      for (int64_t c = 0; c < channels; ++c) {
        planes.x = x + (sample * channels + c) * padded_height_ * padded_width_;
        AddKernel(size, planes, sums + c * taps);
      }
    }
    Write(first, sums, bias, gradient);
  }

  void Write(int64_t first, const __m256* sums, __m256 bias, float* gradient) const {
    const int64_t filters = std::min(kLanes, g_.output[1] - first), weights = g_.weight_size() / g_.output[1];
    float lanes[kLanes];
    for (int64_t i = 0; i < weights; ++i) {
      _mm256_storeu_ps(lanes, sums[i]);
      for (int64_t f = 0; f < filters; ++f) gradient[(first + f) * weights + i] = lanes[f];
    }
    if (!g_.has_bias) return;
    _mm256_storeu_ps(lanes, bias);
    std::copy(lanes, lanes + filters, gradient + g_.weight_size() + first);
  }

  ConvGeometry g_;
  SampleLayout layout_;  // of a sample's gradient
  memory source_;
  memory d_output_;
  int64_t padded_height_, padded_width_;
  std::vector<float> padded_;  // the input with its padding, if it has any
};

}  // namespace

std::optional<ConvDescription> DescribeFewChannels(const ConvGeometry& g, const memory::desc& source,
                                                   const memory::desc& output) {
  const int64_t size = g.kernel_size();
  if (g.groups != 1 || g.source[1] > kMaxChannels || (size != 3 && size != 5 && size != 7))
    return std::nullopt;
  const absl::StatusOr<SampleLayout> layout = LayoutOfSample(output);
  if (!layout.ok() || (layout->block != 8 && layout->block != 16) || layout->stored() % layout->block != 0) {
    return std::nullopt;
  }
  if (source != PlainLayout(g.source)) return std::nullopt;
  return ConvDescription{.algorithm = ConvAlgorithm::kFewChannels,
                         .implementation = "few_channels",
                         .source = source,
                         .weight = PlainLayout(g.weight),
                         .bias = g.has_bias ? PlainLayout(g.bias) : memory::desc(),
                         .output = output};
}

std::unique_ptr<ConvPass> MakeFewChannelsBackwardWeights(const ConvGeometry& g,
                                                         const ConvDescription& description,
                                                         const memory& source, const memory& d_output) {
  return std::make_unique<FewChannelsBackwardWeights>(g, *LayoutOfSample(description.output), source,
                                                      d_output);
}

}  // namespace catchment
