// Layers that compute each value separately.
#include <cmath>

#include "kernels/cuda/device.h"
#include "kernels/cuda/loops.h"
#include "kernels/cuda/node.h"
#include "kernels/dropout_mask.h"

namespace catchment::cuda {
namespace {

// y = F::Value(x), dx = dy F::Slope(x, y).
template <typename F>
class Elementwise final : public Layer {
 public:
  Elementwise(Device* device, const CatchmentCudaLayer& spec, const Tensor& input)
      : Layer(device, spec, 0), device_(device), input_(input) {}

  void Forward(const Pass&) override {
    const float* const in = input_.value;
    float* const out = output->value;
    device_->ForEach(input_.size(), [=] CATCHMENT_ON_DEVICE(int i) { out[i] = F::Value(in[i]); });
  }

  void Backward(const Pass&) override {
    const float *const in = input_.value, *const out = output->value, *const d_out = output->gradient;
    float* const d_in = input_.gradient;
    device_->ForEach(input_.size(),
                     [=] CATCHMENT_ON_DEVICE(int i) { d_in[i] = d_out[i] * F::Slope(in[i], out[i]); });
  }

 private:
  Device* device_;
  const Tensor input_;
};

struct Relu {
  CATCHMENT_ON_DEVICE static float Value(float x) { return x > 0 ? x : 0.0f; }
  CATCHMENT_ON_DEVICE static float Slope(float, float y) { return y > 0 ? 1.0f : 0.0f; }
};

struct Gelu {
  CATCHMENT_ON_DEVICE static float Below(float x) { return 0.5f * (1 + erff(x * 0.70710678f)); }
  CATCHMENT_ON_DEVICE static float Value(float x) { return x * Below(x); }
  CATCHMENT_ON_DEVICE static float Slope(float x, float) {
    return Below(x) + x * 0.39894228f * expf(-0.5f * x * x);
  }
};

struct Tanh {
  CATCHMENT_ON_DEVICE static float Value(float x) { return tanhf(x); }
  CATCHMENT_ON_DEVICE static float Slope(float, float y) { return 1 - y * y; }
};

struct Sigmoid {
  CATCHMENT_ON_DEVICE static float Value(float x) { return 1 / (1 + expf(-x)); }
  CATCHMENT_ON_DEVICE static float Slope(float, float y) { return y * (1 - y); }
};

class Dropout final : public Layer {
 public:
  Dropout(Device* device, const CatchmentCudaLayer& spec, const Tensor& input)
      : Layer(device, spec, 0),
        device_(device),
        input_(input),
        rate_(spec.rate),
        seed_(spec.seed),
        index_(spec.index),
        staged_(device, 2 * input.batch),
        keys_(device, 2 * input.batch) {}

  void Forward(const Pass& pass) override {
    if (pass.mode == kTraining) LoadKeys(pass);
    Run(pass, input_.value, output->value);
  }

  void Backward(const Pass& pass) override { Run(pass, output->gradient, input_.gradient); }

  void Run(const Pass& pass, const float* from, float* to) {
    const int channels = static_cast<int>(input_.shape.channels), area = static_cast<int>(input_.area());
    const int size = static_cast<int>(input_.sample_size());
    const bool image = input_.is_image(), drops = pass.mode == kTraining;
    const uint32_t threshold = DropoutThreshold(rate_);
    const float scale = drops ? 1 / (1 - rate_) : 1.0f;
    const uint32_t* const keys = keys_.data();
    device_->ForEach(input_.size(), [=] CATCHMENT_ON_DEVICE(int i) {
      const int sample = i / size, at = i % size;
      // Masks are defined in the host's order.
      const int element = image ? at % channels * area + at / channels : at;
      const bool dropped = drops && DropoutHash({keys[2 * sample], keys[2 * sample + 1]},
                                                static_cast<uint32_t>(element)) < threshold;
      to[i] = dropped ? 0.0f : from[i] * scale;
    });
  }

 private:
  // The keys of padded rows do not matter.
  void LoadKeys(const Pass& pass) {
    for (int64_t s = 0; s < input_.batch; ++s) {
      const DropoutKey key = MakeDropoutKey(seed_, index_, s < pass.samples ? pass.sample_ids[s] : 0);
      staged_.data()[2 * s] = key.first;
      staged_.data()[2 * s + 1] = key.second;
    }
    device_->CopyIn(keys_.data(), staged_.data(), staged_.bytes());
  }

  Device* device_;
  const Tensor input_;
  const float rate_;
  const uint64_t seed_;
  const int index_;
  PinnedArray<uint32_t> staged_;
  DeviceArray<uint32_t> keys_;
};

class Add final : public Layer {
 public:
  Add(Device* device, const CatchmentCudaLayer& spec, const Tensor& first, const Tensor& second)
      : Layer(device, spec, 0), device_(device), first_(first), second_(second), relu_(spec.relu != 0) {}

  void Forward(const Pass&) override {
    const bool relu = relu_;
    const float *const a = first_.value, *const b = second_.value;
    float* const out = output->value;
    device_->ForEach(output->size(), [=] CATCHMENT_ON_DEVICE(int i) {
      const float sum = a[i] + b[i];
      out[i] = relu && !(sum > 0) ? 0.0f : sum;
    });
  }

  void Backward(const Pass&) override {
    if (relu_) MaskByRelu(device_, output);
    const float* const d_out = output->gradient;
    float *const d_a = first_.gradient, *const d_b = second_.gradient;
    device_->ForEach(output->size(), [=] CATCHMENT_ON_DEVICE(int i) { d_a[i] = d_b[i] = d_out[i]; });
  }

 private:
  Device* device_;
  const Tensor first_, second_;
  const bool relu_;
};

}  // namespace

std::unique_ptr<Layer> MakeRelu(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<Elementwise<Relu>>(device, spec, input);
}

std::unique_ptr<Layer> MakeGelu(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<Elementwise<Gelu>>(device, spec, input);
}

std::unique_ptr<Layer> MakeTanh(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<Elementwise<Tanh>>(device, spec, input);
}

std::unique_ptr<Layer> MakeSigmoid(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<Elementwise<Sigmoid>>(device, spec, input);
}

std::unique_ptr<Layer> MakeDropout(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<Dropout>(device, spec, input);
}

std::unique_ptr<Layer> MakeAdd(Device* device, const CatchmentCudaLayer& spec, const Tensor& first,
                               const Tensor& second) {
  return std::make_unique<Add>(device, spec, first, second);
}

}  // namespace catchment::cuda
