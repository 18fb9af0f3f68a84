// Maximum and average over windows, and over whole channels.
#include <cmath>

#include "kernels/cuda/device.h"
#include "kernels/cuda/loops.h"
#include "kernels/cuda/node.h"

namespace catchment::cuda {
namespace {

struct Window {
  int channels, height, width;  // of the input
  Steps rows, columns;
};

Window WindowOf(const CatchmentCudaLayer& spec) {
  return {static_cast<int>(spec.input.channels), static_cast<int>(spec.input.height),
          static_cast<int>(spec.input.width),
          Steps(spec.output.height, spec.kernel_size, spec.stride, spec.padding),
          Steps(spec.output.width, spec.kernel_size, spec.stride, spec.padding)};
}

// A pack of channels of a pixel, by its number among those of images of height x width.
template <int kWidth>
struct Places {
  Places(int channels, int height, int width)
      : by_channels(channels / kWidth), by_height(height), by_width(width) {}

  struct Place {
    int sample, y, x, channel;
  };
  CATCHMENT_ON_DEVICE Place operator()(int i) const {
    Place place;
    place.sample =
        by_height.Divide(by_width.Divide(by_channels.Divide(i, &place.channel), &place.x), &place.y);
    place.channel *= kWidth;
    return place;
  }

  Divisor by_channels, by_height, by_width;
};

// Calls f(index of the first input value of a pack, its place in the image) for each pixel in the window of
// the output `at`, row by row.
template <typename Place, typename F>
CATCHMENT_ON_DEVICE void ForEachSeen(const Window& w, const Place& at, F f) {
  for (int ky = 0; ky < w.rows.size; ++ky) {
    for (int kx = 0; kx < w.columns.size; ++kx) {
      const int row = w.rows.Input(at.y, ky), column = w.columns.Input(at.x, kx);
      if (row < 0 || row >= w.height || column < 0 || column >= w.width) continue;
      const int place = row * w.width + column;
      f((at.sample * w.height * w.width + place) * w.channels + at.channel, place);
    }
  }
}

// Calls f(index of the first output value of a pack) for each output whose window contains the input `at`.
template <typename Place, typename F>
CATCHMENT_ON_DEVICE void ForEachSeeing(const Window& w, const Place& at, F f) {
  ForEachWindowOver(w.rows, w.columns, at.y, at.x, [&](int out_y, int out_x, int, int) {
    f(((at.sample * w.rows.out + out_y) * w.columns.out + out_x) * w.channels + at.channel);
  });
}

// Max pooling. The first of equal values, row by row, is the maximum.
class MaxPool final : public Layer {
 public:
  MaxPool(Device* device, const CatchmentCudaLayer& spec, const Tensor& input)
      : Layer(device, spec, 0),
        device_(device),
        input_(input),
        window_(WindowOf(spec)),
        where_(device, output->size()) {}

  void Forward(const Pass&) override {
    WithPackWidth<4>(window_.channels, [&](auto width) { Take<width()>(); });
  }
  void Backward(const Pass&) override {
    WithPackWidth<4>(window_.channels, [&](auto width) { GiveBack<width()>(); });
  }

  template <int kWidth>
  void Take() {
    const Window w = window_;
    const Places<kWidth> places(w.channels, w.rows.out, w.columns.out);
    const float* const in = input_.value;
    float* const out = output->value;
    int32_t* const where = where_.data();
    device_->ForEach(output->size() / kWidth, [=] CATCHMENT_ON_DEVICE(int i) {
      Pack<kWidth> largest;
      Pack<kWidth, int32_t> at;
      for (int k = 0; k < kWidth; ++k) {
        largest.at[k] = -INFINITY;
        at.at[k] = -1;
      }
      ForEachSeen(w, places(i), [&](int seen, int place) {
        const auto values = LoadPack<kWidth>(in + seen);
        for (int k = 0; k < kWidth; ++k) {
          if (at.at[k] >= 0 && !(values.at[k] > largest.at[k])) continue;
          largest.at[k] = values.at[k];
          at.at[k] = place;
        }
      });
      StorePack(out + i * kWidth, largest);
      StorePack(where + i * kWidth, at);
    });
  }

  template <int kWidth>
  void GiveBack() {
    const Window w = window_;
    const Places<kWidth> places(w.channels, w.height, w.width);
    const float* const d_out = output->gradient;
    float* const d_in = input_.gradient;
    const int32_t* const where = where_.data();
    device_->ForEach(input_.size() / kWidth, [=] CATCHMENT_ON_DEVICE(int i) {
      const auto at = places(i);
      const int place = at.y * w.width + at.x;
      Pack<kWidth> sum = {};
      ForEachSeeing(w, at, [&](int seeing) {
        const auto chosen = LoadPack<kWidth>(where + seeing);
        const auto values = LoadPack<kWidth>(d_out + seeing);
        for (int k = 0; k < kWidth; ++k) sum.at[k] += chosen.at[k] == place ? values.at[k] : 0.0f;
      });
      StorePack(d_in + i * kWidth, sum);
    });
  }

 private:
  Device* device_;
  const Tensor input_;
  const Window window_;
  DeviceArray<int32_t> where_;  // the maximum's place in its image
};

// Average pooling. The zeros of the padding are included.
class AveragePool final : public Layer {
 public:
  AveragePool(Device* device, const CatchmentCudaLayer& spec, const Tensor& input)
      : Layer(device, spec, 0), device_(device), input_(input), window_(WindowOf(spec)) {}

  void Forward(const Pass&) override {
    WithPackWidth<4>(window_.channels, [&](auto width) { Take<width()>(); });
  }
  void Backward(const Pass&) override {
    WithPackWidth<4>(window_.channels, [&](auto width) { GiveBack<width()>(); });
  }

  template <int kWidth>
  void Take() {
    const Window w = window_;
    const Places<kWidth> places(w.channels, w.rows.out, w.columns.out);
    const float share = 1.0f / static_cast<float>(w.rows.size * w.columns.size);
    const float* const in = input_.value;
    float* const out = output->value;
    device_->ForEach(output->size() / kWidth, [=] CATCHMENT_ON_DEVICE(int i) {
      Pack<kWidth> sum = {};
      ForEachSeen(w, places(i), [&](int seen, int) {
        const auto values = LoadPack<kWidth>(in + seen);
        for (int k = 0; k < kWidth; ++k) sum.at[k] += share * values.at[k];
      });
      StorePack(out + i * kWidth, sum);
    });
  }

  template <int kWidth>
  void GiveBack() {
    const Window w = window_;
    const Places<kWidth> places(w.channels, w.height, w.width);
    const float share = 1.0f / static_cast<float>(w.rows.size * w.columns.size);
    const float* const d_out = output->gradient;
    float* const d_in = input_.gradient;
    device_->ForEach(input_.size() / kWidth, [=] CATCHMENT_ON_DEVICE(int i) {
      Pack<kWidth> sum = {};
      ForEachSeeing(w, places(i), [&](int seeing) {
        const auto values = LoadPack<kWidth>(d_out + seeing);
        for (int k = 0; k < kWidth; ++k) sum.at[k] += share * values.at[k];
      });
      StorePack(d_in + i * kWidth, sum);
    });
  }

 private:
  Device* device_;
  const Tensor input_;
  const Window window_;
};

class GlobalAveragePool final : public Layer {
 public:
  GlobalAveragePool(Device* device, const CatchmentCudaLayer& spec, const Tensor& input)
      : Layer(device, spec, 0),
        device_(device),
        input_(input),
        channels_(static_cast<int>(input.shape.channels)),
        area_(static_cast<int>(input.area())) {}

  void Forward(const Pass&) override {
    const int channels = channels_, area = area_;
    const Divisor by_channels(channels);
    const float* const in = input_.value;
    float* const out = output->value;
    device_->ForEach(output->size(), [=] CATCHMENT_ON_DEVICE(int i) {
      int channel;
      const int sample = by_channels.Divide(i, &channel);
      const float* const first = in + sample * area * channels + channel;
      float sum = 0;
      for (int place = 0; place < area; ++place) sum += first[place * channels];
      out[i] = sum / area;
    });
  }

  void Backward(const Pass&) override {
    WithPackWidth<4>(channels_, [&](auto width) { GiveBack<width()>(); });
  }

  template <int kWidth>
  void GiveBack() {
    const Places<kWidth> places(channels_, area_, 1);
    const int channels = channels_;
    const float share = 1.0f / static_cast<float>(area_);
    const float* const d_out = output->gradient;
    float* const d_in = input_.gradient;
    device_->ForEach(input_.size() / kWidth, [=] CATCHMENT_ON_DEVICE(int i) {
      const auto at = places(i);
      auto gradient = LoadPack<kWidth>(d_out + at.sample * channels + at.channel);
      for (int k = 0; k < kWidth; ++k) gradient.at[k] *= share;
      StorePack(d_in + i * kWidth, gradient);
    });
  }

 private:
  Device* device_;
  const Tensor input_;
  const int channels_, area_;
};

}  // namespace

std::unique_ptr<Layer> MakeMaxPool(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<MaxPool>(device, spec, input);
}

std::unique_ptr<Layer> MakeAveragePool(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<AveragePool>(device, spec, input);
}

std::unique_ptr<Layer> MakeGlobalAveragePool(Device* device, const CatchmentCudaLayer& spec,
                                             const Tensor& input) {
  return std::make_unique<GlobalAveragePool>(device, spec, input);
}

}  // namespace catchment::cuda
