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
    ForEachValue(
        device_, input_.size(), output->value, [] CATCHMENT_ON_DEVICE(float x) { return F::Value(x); },
        input_.value);
  }

  void Backward(const Pass&) override {
    ForEachValue(
        device_, input_.size(), input_.gradient,
        [] CATCHMENT_ON_DEVICE(float x, float y, float d_y) { return d_y * F::Slope(x, y); }, input_.value,
        output->value, output->gradient);
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
    // A pack has values of one pixel.
    WithPackWidth<4>(input_.is_image() ? input_.shape.channels : input_.sample_size(),
                     [&](auto width) { RunPacks<width()>(pass, from, to); });
  }

  template <int kWidth>
  void RunPacks(const Pass& pass, const float* from, float* to) {
    const Divisor by_size(input_.sample_size() / kWidth), by_channels(input_.shape.channels);
    const int area = static_cast<int>(input_.area());
    const bool image = input_.is_image(), drops = pass.mode == kTraining;
    const uint32_t threshold = DropoutThreshold(rate_);
    const float scale = drops ? 1 / (1 - rate_) : 1.0f;
    const uint32_t* const keys = keys_.data();
    device_->ForEach(input_.size() / kWidth, [=] CATCHMENT_ON_DEVICE(int i) {
      int at;
      const int sample = by_size.Divide(i, &at);
      // Masks are defined in the host's order.
      int element = at * kWidth, step = 1;
      if (image) {
        int channel;
        const int place = by_channels.Divide(at * kWidth, &channel);
        element = channel * area + place;
        step = area;
      }
      auto values = LoadPack<kWidth>(from + i * kWidth);
      for (int k = 0; k < kWidth; ++k) {
        const bool dropped = drops && DropoutHash({keys[2 * sample], keys[2 * sample + 1]},
                                                  static_cast<uint32_t>(element + k * step)) < threshold;
        values.at[k] = dropped ? 0.0f : values.at[k] * scale;
      }
      StorePack(to + i * kWidth, values);
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

// The packs of values in memory.
template <int kWidth>
struct StoredPacks {
  FactorReader from;
  CATCHMENT_ON_DEVICE Pack<kWidth> operator()(int i) const { return from.Read<kWidth>(int64_t{i} * kWidth); }
};

// Calls f with what computes the packs of a tensor, in a kernel.
template <int kWidth, typename F>
void WithPacks(const Tensor& tensor, F f) {
  if (tensor.normalizer != nullptr) return f(NormalizedPacks<kWidth>(tensor.normalizer->of_pass));
  f(StoredPacks<kWidth>{{tensor.value, tensor.storage}});
}

// The sum of two activations. It computes the outputs of batch norms that nothing else reads, so that norm,
// sum and relu are one kernel. Gradients of both are that of the sum; if they allow it they share its memory,
// and nothing is copied.
class Add final : public Layer {
 public:
  Add(Device* device, const CatchmentCudaLayer& spec, Tensor* first, Tensor* second)
      : Layer(device, spec, 0), device_(device), relu_(spec.relu != 0) {
    if (relu_) output.tensor()->gradient_is_masked = &gradient_is_masked_;
    for (Tensor* input : {first, second}) {
      if (input->normalizer != nullptr) input->normalizer->is_taken = true;
      if (!input->gradient_may_be_shared || input->storage != output->storage) continue;
      input->gradient = output->gradient;
      shares_ = true;
    }
    first_ = *first;
    second_ = *second;
  }

  void Forward(const Pass&) override {
    const bool normalizes = first_.normalizer != nullptr || second_.normalizer != nullptr;
    // Packs of a batch norm are of one pixel.
    WithPackWidth<8>(normalizes ? output->shape.channels : output->size(), [&](auto width) {
      WithPacks<width()>(first_,
                         [&](auto a) { WithPacks<width()>(second_, [&](auto b) { Sum<width()>(a, b); }); });
    });
  }

  void Backward(const Pass&) override {
    WithPackWidth<8>(output->size(), [&](auto width) { GiveBack<width()>(); });
  }

  template <int kWidth, typename A, typename B>
  void Sum(A a, B b) {
    const bool relu = relu_;
    const FactorWriter sum = {output->value, output->storage};
    device_->ForEach(output->size() / kWidth, [=] CATCHMENT_ON_DEVICE(int i) {
      auto values = a(i);
      const auto others = b(i);
      for (int k = 0; k < kWidth; ++k) {
        const float value = values.at[k] + others.at[k];
        values.at[k] = relu && !(value > 0) ? 0.0f : value;
      }
      sum.Write(int64_t{i} * kWidth, values);
    });
  }

  template <int kWidth>
  void GiveBack() {
    const bool masks = relu_ && !gradient_is_masked_;
    const FactorReader value = {output->value, output->storage}, d_out = {output->gradient, output->storage};
    // Nothing is written to null.
    const FactorWriter d_a = CopyFor(first_), d_b = CopyFor(second_),
                       masked = {masks && shares_ ? output->gradient : nullptr, output->storage};
    if (d_a.to == nullptr && d_b.to == nullptr && masked.to == nullptr) return;
    device_->ForEach(output->size() / kWidth, [=] CATCHMENT_ON_DEVICE(int i) {
      const int64_t at = int64_t{i} * kWidth;
      auto gradient = d_out.Read<kWidth>(at);
      if (masks) gradient = ZeroWhereNotPositive(value.Read<kWidth>(at), gradient);
      masked.Write(at, gradient);
      d_a.Write(at, gradient);
      d_b.Write(at, gradient);
    });
  }

 private:
  FactorWriter CopyFor(const Tensor& input) const {
    return {input.gradient == output->gradient ? nullptr : input.gradient, input.storage};
  }

  Device* device_;
  Tensor first_, second_;
  const bool relu_;
  bool shares_ = false;              // the memory of the output's gradient, with an input or both
  bool gradient_is_masked_ = false;  // by the fork that reads the output
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

std::unique_ptr<Layer> MakeAdd(Device* device, const CatchmentCudaLayer& spec, Tensor* first,
                               Tensor* second) {
  return std::make_unique<Add>(device, spec, first, second);
}

}  // namespace catchment::cuda
