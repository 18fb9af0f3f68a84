// Batch norm, in loops of our own, because its statistics are those of parts of a minibatch: without padding,
// and of ghost batches.
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/layers.h"
#include "kernels/cpu/parallel.h"

namespace catchment {
namespace {

// A sample as rows of values in which channels repeat: at place j, row r of plane p holds a value of channel
// p * period + j % period. Rows as wide as a vector register make sums over few channels fast.
struct Planes {
  int64_t planes;
  int64_t rows;
  int64_t width;
  int64_t period;

  int64_t size() const { return rows * width; }
};

constexpr int64_t kWidest = 16;  // the width of the widest rows whose sums are kept in registers

Planes PlanesOf(const SampleLayout& layout) {
  const int64_t size = layout.positions * layout.block;
  for (int64_t width : {kWidest, int64_t{8}}) {
    if (width % layout.block == 0 && size % width == 0)
      return {layout.blocks, size / width, width, layout.block};
  }
  return {layout.blocks, layout.positions, layout.block, layout.block};
}

// Copies the channels' parameters to the places of a row.
template <int kWidth>
void Spread(const float* channels, int64_t period, float* places) {
  for (int j = 0; j < kWidth; ++j) places[j] = channels[j % period];
}

// Adds the two terms of each value, in order: the first to first[place % period], the second to second[...];
// term(value, place, &first, &second) computes them. kWidth is the width of the rows, 0 if it is larger than
// kWidest.
template <int kWidth, typename Term>
void AddTerms(const Planes& planes, Term term, double* first, double* second) {
  constexpr int64_t kRowsInFloat = 256;  // the rows that are summed in float before rounding matters
  if constexpr (kWidth == 0) {
    for (int64_t r = 0, i = 0; r < planes.rows; ++r) {
      for (int64_t j = 0; j < planes.width; ++j, ++i) {
        float a, b;
        term(i, j, &a, &b);
        first[j] += a;
        second[j] += b;
      }
    }
  } else {
    for (int64_t r = 0; r < planes.rows; r += kRowsInFloat) {
      float a_sum[kWidth] = {}, b_sum[kWidth] = {};
      for (int64_t i = r * kWidth, end = std::min(planes.rows, r + kRowsInFloat) * kWidth; i < end;
           i += kWidth) {
        for (int j = 0; j < kWidth; ++j) {
          float a, b;
          term(i + j, j, &a, &b);
          a_sum[j] += a;
          b_sum[j] += b;
        }
      }
      for (int j = 0; j < kWidth; ++j) {
        first[j % planes.period] += a_sum[j];
        second[j % planes.period] += b_sum[j];
      }
    }
  }
}

// Calls assign(value, place) for all values of a plane.
template <int kWidth, typename Assign>
void AssignAll(const Planes& planes, Assign assign) {
  const int64_t width = kWidth != 0 ? kWidth : planes.width;
  for (int64_t i = 0; i < planes.size(); i += width) {
    for (int64_t j = 0; j < width; ++j) assign(i + j, j);
  }
}

// The parameters at the places of a row: a copy for narrow rows, otherwise the channels' values themselves.
template <int kWidth>
class Places {
 public:
  Places(const float* channels, int64_t period) : channels_(channels) {
    if constexpr (kWidth != 0) Spread<kWidth>(channels, period, copy_);
  }
  float operator[](int64_t place) const { return kWidth != 0 ? copy_[place] : channels_[place]; }

 private:
  const float* channels_;
  float copy_[kWidth != 0 ? kWidth : 1];
};

// Batch norm. With a = weight / sqrt(variance + epsilon), y = a x + (bias - a mean), and for the gradient d
// of y, over m values
//   d_bias = sum d,  d_weight = sum d (x - mean) / sqrt(variance + epsilon)
//   d_x = a (d - d_bias / m - (x - mean) / sqrt(variance + epsilon) d_weight / m)
// in each ghost batch. Sums are computed over each sample first and then over the samples in order, so they
// do not depend on the number of threads. The backward pass of a relu computes the output again.
class CpuBatchNorm final : public Kernel {
 public:
  CpuBatchNorm(CpuContext* context, const KernelSpec& spec, const dnnl::memory::desc& layout,
               const SampleLayout& sample, const CpuActivation* input)
      : batch_size_(spec.batch_size),
        ghost_batch_(spec.layer.ghost_batch > 0 ? std::min<int64_t>(spec.layer.ghost_batch, spec.batch_size)
                                                : spec.batch_size),
        channels_(spec.layer.input.channels),
        relu_(spec.relu),
        epsilon_(spec.layer.epsilon),
        planes_(PlanesOf(sample)),
        stored_channels_(planes_.planes * planes_.period),
        input_(context, input, layout),
        output_(context, layout),
        pivot_(stored_channels_),
        sums_(2 * batch_size_ * stored_channels_),
        ghosts_((batch_size_ + ghost_batch_ - 1) / ghost_batch_, Ghost(stored_channels_)) {}

  Activation* output() override { return &output_; }

  void Forward(const float* parameters, const Pass& pass) override {
    input_.Pull();
    if (pass.mode == PassMode::kScoring) {
      SetGhost(pass.statistics, pass.statistics + channels_, parameters, &ghosts_[0]);
      return Dispatch([&](auto width) { Normalize<width()>(0, batch_size_, ghosts_[0]); });
    }
    Dispatch([&](auto width) { SumSamples<width()>(pass.samples); });
    if (pass.statistics != nullptr) std::fill_n(pass.statistics, 2 * channels_, 0.0f);
    for (int64_t g = 0, begin = 0; begin < pass.samples; ++g, begin += ghost_batch_) {
      const int64_t end = std::min<int64_t>(pass.samples, begin + ghost_batch_);
      TakeStatistics(begin, end, parameters, &ghosts_[g]);
      // Rows of padding belong to the last ghost batch.
      const int64_t last = end == pass.samples ? batch_size_ : end;
      Dispatch([&](auto width) { Normalize<width()>(begin, last, ghosts_[g]); });
      if (pass.statistics != nullptr) Gather(ghosts_[g], end - begin, pass.samples, pass.statistics);
    }
    if (pass.statistics != nullptr) FinishGathering(pass.statistics);
  }

  void Backward(const float* parameters, const Pass& pass, float* gradient) override {
    std::fill_n(gradient, 2 * channels_, 0.0f);
    for (int64_t g = 0, begin = 0; begin < pass.samples; ++g, begin += ghost_batch_) {
      const int64_t end = std::min<int64_t>(pass.samples, begin + ghost_batch_);
      Dispatch([&](auto width) { SumGradients<width()>(begin, end, ghosts_[g]); });
      TakeGradients(begin, end, parameters, gradient, &ghosts_[g]);
      Dispatch([&](auto width) { WriteGradient<width()>(begin, end, ghosts_[g]); });
    }
    const int64_t size = planes_.planes * planes_.size();
    std::fill(input_.gradient_data() + pass.samples * size, input_.gradient_data() + batch_size_ * size,
              0.0f);
    input_.Push();
  }

 private:
  // The values of each channel in one ghost batch; values that are stored beyond the channels stay 0.
  struct Ghost {
    explicit Ghost(int64_t channels)
        : mean(channels),
          variance(channels),
          scale(channels),
          shift(channels),
          slope(channels),
          offset(channels) {}
    std::vector<float> mean, variance;
    std::vector<float> scale, shift;   // y = scale x + shift
    std::vector<float> slope, offset;  // d_x = scale d + slope x + offset
  };

  // Calls f with the rows' width as a constant.
  template <typename F>
  void Dispatch(F f) const {
    if (planes_.width == kWidest) return f(std::integral_constant<int, kWidest>());
    if (planes_.width == 8) return f(std::integral_constant<int, 8>());
    f(std::integral_constant<int, 0>());
  }

  // Calls f(sample, plane, index of its first value) on several threads.
  template <typename F>
  void ForEachPlane(int64_t begin, int64_t end, F f) const {
    constexpr int64_t kGrain = 1 << 14;
    ParallelFor((end - begin) * planes_.planes, kGrain / planes_.size() + 1, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) {
        const int64_t sample = begin + i / planes_.planes, plane = i % planes_.planes;
        f(sample, plane, (sample * planes_.planes + plane) * planes_.size());
      }
    });
  }

  double* SumsOf(int64_t sample) { return sums_.data() + 2 * sample * stored_channels_; }

  // Sums x - pivot and its square for each sample. The pivot is one of the values, so that small differences
  // between large values are not lost.
  template <int kWidth>
  void SumSamples(int64_t samples) {
    for (int64_t c = 0; c < stored_channels_; ++c) {
      pivot_[c] = input_.value_data()[c / planes_.period * planes_.size() + c % planes_.period];
    }
    ForEachPlane(0, samples, [&](int64_t sample, int64_t plane, int64_t at) {
      const float* const x = input_.value_data() + at;
      const int64_t channel = plane * planes_.period;
      const Places<kWidth> pivot(pivot_.data() + channel, planes_.period);
      double* const sums = SumsOf(sample) + channel;
      std::fill_n(sums, planes_.period, 0.0);
      std::fill_n(sums + stored_channels_, planes_.period, 0.0);
      AddTerms<kWidth>(
          planes_,
          [&](int64_t i, int64_t j, float* first, float* second) {
            *first = x[i] - pivot[j];
            *second = *first * *first;
          },
          sums, sums + stored_channels_);
    });
  }

  // Returns the two sums over the samples begin .. end-1.
  std::pair<double, double> Total(int64_t begin, int64_t end, int64_t channel) {
    double first = 0, second = 0;
    for (int64_t sample = begin; sample < end; ++sample) {
      first += SumsOf(sample)[channel];
      second += SumsOf(sample)[stored_channels_ + channel];
    }
    return {first, second};
  }

  double CountValues(int64_t samples) const {
    const int64_t values = samples * planes_.size() / planes_.period;
    return static_cast<double>(values);
  }

  void TakeStatistics(int64_t begin, int64_t end, const float* parameters, Ghost* ghost) {
    const double count = CountValues(end - begin);
    for (int64_t c = 0; c < channels_; ++c) {
      const auto [sum, squares] = Total(begin, end, c);
      const double mean = sum / count;  // of x - pivot
      ghost->mean[c] = static_cast<float>(pivot_[c] + mean);
      ghost->variance[c] = static_cast<float>(std::max(0.0, squares / count - mean * mean));
    }
    SetGhost(ghost->mean.data(), ghost->variance.data(), parameters, ghost);
  }

  void SetGhost(const float* mean, const float* variance, const float* parameters, Ghost* ghost) const {
    for (int64_t c = 0; c < channels_; ++c) {
      ghost->scale[c] = parameters[c] / std::sqrt(variance[c] + epsilon_);
      ghost->shift[c] = parameters[channels_ + c] - ghost->scale[c] * mean[c];
    }
  }

  template <int kWidth>
  void Normalize(int64_t begin, int64_t end, const Ghost& ghost) {
    ForEachPlane(begin, end, [&](int64_t, int64_t plane, int64_t at) {
      const float* const x = input_.value_data() + at;
      float* const y = output_.value_data() + at;
      const int64_t channel = plane * planes_.period;
      const Places<kWidth> scale(ghost.scale.data() + channel, planes_.period);
      const Places<kWidth> shift(ghost.shift.data() + channel, planes_.period);
      if (relu_) {
        AssignAll<kWidth>(planes_,
                          [&](int64_t i, int64_t j) { y[i] = std::max(x[i] * scale[j] + shift[j], 0.0f); });
      } else {
        AssignAll<kWidth>(planes_, [&](int64_t i, int64_t j) { y[i] = x[i] * scale[j] + shift[j]; });
      }
    });
  }

  // Adds a ghost batch's share to the means of x - pivot and its square.
  void Gather(const Ghost& ghost, int64_t part, int64_t samples, float* statistics) const {
    const float share = static_cast<float>(part) / static_cast<float>(samples);
    for (int64_t c = 0; c < channels_; ++c) {
      const float from_pivot = ghost.mean[c] - pivot_[c];
      statistics[c] += share * from_pivot;
      statistics[channels_ + c] += share * (ghost.variance[c] + from_pivot * from_pivot);
    }
  }

  void FinishGathering(float* statistics) const {
    for (int64_t c = 0; c < channels_; ++c) {
      const float from_pivot = statistics[c];
      statistics[c] = pivot_[c] + from_pivot;
      statistics[channels_ + c] = std::max(0.0f, statistics[channels_ + c] - from_pivot * from_pivot);
    }
  }

  // Sums d and d (x - mean), where d is the gradient after the relu.
  template <int kWidth>
  void SumGradients(int64_t begin, int64_t end, const Ghost& ghost) {
    ForEachPlane(begin, end, [&](int64_t sample, int64_t plane, int64_t at) {
      const float* const x = input_.value_data() + at;
      const float* const d_y = output_.gradient_data() + at;
      const int64_t channel = plane * planes_.period;
      const Places<kWidth> mean(ghost.mean.data() + channel, planes_.period);
      const Places<kWidth> scale(ghost.scale.data() + channel, planes_.period);
      const Places<kWidth> shift(ghost.shift.data() + channel, planes_.period);
      double* const sums = SumsOf(sample) + channel;
      std::fill_n(sums, planes_.period, 0.0);
      std::fill_n(sums + stored_channels_, planes_.period, 0.0);
      const auto add = [&](auto gradient) {
        AddTerms<kWidth>(
            planes_,
            [&](int64_t i, int64_t j, float* first, float* second) {
              *first = gradient(i, j);
              *second = *first * (x[i] - mean[j]);
            },
            sums, sums + stored_channels_);
      };
      if (relu_) {
        add([&](int64_t i, int64_t j) { return x[i] * scale[j] + shift[j] > 0 ? d_y[i] : 0.0f; });
      } else {
        add([&](int64_t i, int64_t) { return d_y[i]; });
      }
    });
  }

  void TakeGradients(int64_t begin, int64_t end, const float* parameters, float* gradient, Ghost* ghost) {
    const double count = CountValues(end - begin);
    for (int64_t c = 0; c < channels_; ++c) {
      const auto [d_sum, d_x_sum] = Total(begin, end, c);
      const double inverse = 1 / (static_cast<double>(ghost->variance[c]) + epsilon_);
      gradient[c] += static_cast<float>(d_x_sum * std::sqrt(inverse));
      gradient[channels_ + c] += static_cast<float>(d_sum);
      const double scale = parameters[c] * std::sqrt(inverse);
      const double slope = -scale * inverse * d_x_sum / count;
      ghost->slope[c] = static_cast<float>(slope);
      ghost->offset[c] = static_cast<float>(-scale * d_sum / count);
    }
  }

  template <int kWidth>
  void WriteGradient(int64_t begin, int64_t end, const Ghost& ghost) {
    ForEachPlane(begin, end, [&](int64_t, int64_t plane, int64_t at) {
      const float* const x = input_.value_data() + at;
      const float* const d_y = output_.gradient_data() + at;
      float* const d_x = input_.gradient_data() + at;
      const int64_t channel = plane * planes_.period;
      const Places<kWidth> mean(ghost.mean.data() + channel, planes_.period);
      const Places<kWidth> scale(ghost.scale.data() + channel, planes_.period);
      const Places<kWidth> shift(ghost.shift.data() + channel, planes_.period);
      const Places<kWidth> slope(ghost.slope.data() + channel, planes_.period);
      const Places<kWidth> offset(ghost.offset.data() + channel, planes_.period);
      const auto write = [&](auto gradient) {
        AssignAll<kWidth>(planes_, [&](int64_t i, int64_t j) {
          d_x[i] = gradient(i, j) * scale[j] + (x[i] - mean[j]) * slope[j] + offset[j];
        });
      };
      if (relu_) {
        write([&](int64_t i, int64_t j) { return x[i] * scale[j] + shift[j] > 0 ? d_y[i] : 0.0f; });
      } else {
        write([&](int64_t i, int64_t) { return d_y[i]; });
      }
    });
  }

  int64_t batch_size_;
  int64_t ghost_batch_;
  int64_t channels_;
  bool relu_;
  float epsilon_;
  Planes planes_;
  int64_t stored_channels_;  // with the padding of the layout
  InputPort input_;
  CpuActivation output_;
  std::vector<float> pivot_;
  std::vector<double> sums_;  // two for each channel of each sample
  std::vector<Ghost> ghosts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuBatchNorm(CpuContext* context, const KernelSpec& spec,
                                                         const CpuActivation* input) {
  // The channels of a flattened image are its single values.
  const bool flattened = spec.layer.input.is_vector() && input->layout().dims().size() > 2;
  const dnnl::memory::desc layout = flattened ? PlainLayout(input->layout().dims()) : input->layout();
  ASSIGN_OR_RETURN(SampleLayout sample, LayoutOfSample(layout));
  if (flattened) sample = SampleLayout{1, 1, spec.layer.input.channels};
  return std::make_unique<CpuBatchNorm>(context, spec, layout, sample, input);
}

}  // namespace catchment
