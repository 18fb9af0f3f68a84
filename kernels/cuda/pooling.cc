// Maximum and average over windows, and over whole channels.
#include <cmath>

#include "kernels/cuda/device.h"
#include "kernels/cuda/loops.h"
#include "kernels/cuda/node.h"

namespace catchment::cuda {
namespace {

struct Window {
  int channels, height, width;  // of the input
  int out_height, out_width;
  int size, stride, padding;
};

Window WindowOf(const CatchmentCudaLayer& spec) {
  return {static_cast<int>(spec.input.channels), static_cast<int>(spec.input.height),
          static_cast<int>(spec.input.width),    static_cast<int>(spec.output.height),
          static_cast<int>(spec.output.width),   static_cast<int>(spec.kernel_size),
          static_cast<int>(spec.stride),         static_cast<int>(spec.padding)};
}

// Calls f(index of the input value, its place in the image) for each value in the window of output `i`, row
// by row.
template <typename F>
CATCHMENT_ON_DEVICE void ForEachSeen(const Window& w, int i, F f) {
  const int channel = i % w.channels, x = i / w.channels % w.out_width;
  const int y = i / w.channels / w.out_width % w.out_height,
            sample = i / w.channels / w.out_width / w.out_height;
  for (int ky = 0; ky < w.size; ++ky) {
    for (int kx = 0; kx < w.size; ++kx) {
      const int row = y * w.stride + ky - w.padding, column = x * w.stride + kx - w.padding;
      if (row < 0 || row >= w.height || column < 0 || column >= w.width) continue;
      const int place = row * w.width + column;
      f((sample * w.height * w.width + place) * w.channels + channel, place);
    }
  }
}

// Calls f(index of the output, the input value's place in the image) for each output whose window contains
// input `i`.
template <typename F>
CATCHMENT_ON_DEVICE void ForEachSeeing(const Window& w, int i, F f) {
  const int channel = i % w.channels, x = i / w.channels % w.width;
  const int y = i / w.channels / w.width % w.height, sample = i / w.channels / w.width / w.height;
  ForEachWindowOver(w, y, x, [&](int out_y, int out_x, int, int) {
    f(((sample * w.out_height + out_y) * w.out_width + out_x) * w.channels + channel, y * w.width + x);
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
    const Window w = window_;
    const float* const in = input_.value;
    float* const out = output->value;
    int32_t* const where = where_.data();
    device_->ForEach(output->size(), [=] CATCHMENT_ON_DEVICE(int i) {
      float largest = -INFINITY;
      int at = -1;
      ForEachSeen(w, i, [&](int seen, int place) {
        if (at >= 0 && !(in[seen] > largest)) return;
        largest = in[seen];
        at = place;
      });
      out[i] = largest;
      where[i] = at;
    });
  }

  void Backward(const Pass&) override {
    const Window w = window_;
    const float* const d_out = output->gradient;
    float* const d_in = input_.gradient;
    const int32_t* const where = where_.data();
    device_->ForEach(input_.size(), [=] CATCHMENT_ON_DEVICE(int i) {
      float sum = 0;
      ForEachSeeing(w, i,
                    [&](int seeing, int place) { sum += where[seeing] == place ? d_out[seeing] : 0.0f; });
      d_in[i] = sum;
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
    const Window w = window_;
    const float* const in = input_.value;
    float* const out = output->value;
    device_->ForEach(output->size(), [=] CATCHMENT_ON_DEVICE(int i) {
      float sum = 0;
      ForEachSeen(w, i, [&](int seen, int) { sum += in[seen]; });
      out[i] = sum / (w.size * w.size);
    });
  }

  void Backward(const Pass&) override {
    const Window w = window_;
    const float* const d_out = output->gradient;
    float* const d_in = input_.gradient;
    device_->ForEach(input_.size(), [=] CATCHMENT_ON_DEVICE(int i) {
      float sum = 0;
      ForEachSeeing(w, i, [&](int seeing, int) { sum += d_out[seeing]; });
      d_in[i] = sum / (w.size * w.size);
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
    const float* const in = input_.value;
    float* const out = output->value;
    device_->ForEach(output->size(), [=] CATCHMENT_ON_DEVICE(int i) {
      const float* const first = in + i / channels * area * channels + i % channels;
      float sum = 0;
      for (int place = 0; place < area; ++place) sum += first[place * channels];
      out[i] = sum / area;
    });
  }

  void Backward(const Pass&) override {
    const int channels = channels_, area = area_;
    const float* const d_out = output->gradient;
    float* const d_in = input_.gradient;
    device_->ForEach(input_.size(), [=] CATCHMENT_ON_DEVICE(int i) {
      d_in[i] = d_out[i / (channels * area) * channels + i % channels] / area;
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
