// Relu, dropout, addition and the fork of an activation.
#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/layers.h"
#include "kernels/cpu/parallel.h"
#include "kernels/dropout_mask.h"

namespace catchment {
namespace {

constexpr int64_t kGrain = 1 << 15;

// The output of an element-wise kernel: its input, or a separate activation in the same layout.
class Output {
 public:
  Output(CpuContext* context, bool in_place, CpuActivation* input) : input_(input) {
    if (!in_place) own_.emplace(context, input->layout());
  }

  bool in_place() const { return !own_.has_value(); }
  CpuActivation* get() { return own_ ? &*own_ : input_; }

 private:
  CpuActivation* input_;
  std::optional<CpuActivation> own_;
};

// In the loops below an output may be one of the inputs. Each value is read before it is overwritten, so the
// loops can be vectorised nevertheless, which ivdep tells the compiler.

// Computes out = max(in, 0).
void Relu(const float* in, int64_t size, float* out) {
  ParallelFor(size, kGrain, [=](int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) out[i] = std::max(in[i], 0.0f);
  });
}

// Computes d_in = value > 0 ? d_out : 0.
void ReluGradient(const float* values, const float* d_out, int64_t size, float* d_in) {
  ParallelFor(size, kGrain, [=](int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) {
      const float d = d_out[i];
      d_in[i] = values[i] > 0 ? d : 0.0f;
    }
  });
}

// Computes out = a + b, with kRelu out = max(a + b, 0).
template <bool kRelu>
void Sum(const float* a, const float* b, int64_t size, float* out) {
  ParallelFor(size, kGrain, [=](int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) out[i] = kRelu ? std::max(a[i] + b[i], 0.0f) : a[i] + b[i];
  });
}

void Copy(const float* in, int64_t size, float* out) {
  ParallelFor(size, kGrain,
              [=](int64_t begin, int64_t end) { std::copy(in + begin, in + end, out + begin); });
}

class CpuRelu final : public Kernel {
 public:
  CpuRelu(CpuContext* context, const KernelSpec& spec, CpuActivation* input)
      : input_(input), output_(context, spec.in_place, input) {}

  Activation* output() override { return output_.get(); }

  void Forward(const float*, const Pass&) override {
    Relu(input_->value_data(), input_->stored_values(), output_.get()->value_data());
  }

  void Backward(const float*, const Pass&, float*) override {
    ReluGradient(output_.get()->value_data(), output_.get()->gradient_data(), input_->stored_values(),
                 input_->gradient_data());
  }

 private:
  CpuActivation* input_;
  Output output_;
};

// The output has the layout of the first input. An image and a vector with the same number of values are
// added in plain order.
class CpuAdd final : public Kernel {
 public:
  CpuAdd(CpuContext* context, const KernelSpec& spec, CpuActivation* first, CpuActivation* second)
      : relu_(spec.relu),
        first_(context, first, LayoutFor(*first, *second, first)),
        second_(context, second, LayoutFor(*first, *second, second)),
        in_place_(spec.in_place && first_.is_direct()) {
    if (in_place_) {
      output_.emplace(first->value(), first->gradient());
    } else {
      output_.emplace(context, first_.value().get_desc());
    }
  }

  Activation* output() override { return &*output_; }

  void Forward(const float*, const Pass&) override {
    first_.Pull();
    second_.Pull();
    const auto sum = relu_ ? Sum<true> : Sum<false>;
    sum(first_.value_data(), second_.value_data(), size(), output_->value_data());
  }

  void Backward(const float*, const Pass&, float*) override {
    if (relu_) ReluBackward(*output_);
    if (!in_place_) Copy(output_->gradient_data(), size(), first_.gradient_data());
    Copy(output_->gradient_data(), size(), second_.gradient_data());
    first_.Push();
    second_.Push();
  }

 private:
  // Returns the layout in which `one` of the two is added.
  static dnnl::memory::desc LayoutFor(const CpuActivation& first, const CpuActivation& second,
                                      const CpuActivation* one) {
    if (first.layout().dims() == second.layout().dims()) return first.layout();
    return PlainLayout(one->layout().dims());
  }

  int64_t size() const { return output_->stored_values(); }

  bool relu_;
  InputPort first_;
  InputPort second_;
  bool in_place_;
  std::optional<CpuActivation> output_;
};

// The first reader uses the activation itself, so its gradient needs no copy.
class CpuFork final : public Fork {
 public:
  CpuFork(CpuContext* context, CpuActivation* activation, int readers) : activation_(activation) {
    for (int i = 1; i < readers; ++i) {
      views_.push_back(std::make_unique<CpuActivation>(context, activation->value()));
    }
  }

  Activation* view(int reader) override { return reader == 0 ? activation_ : views_[reader - 1].get(); }

  void SumGradients() override {
    float* const sum = activation_->gradient_data();
    for (const auto& view : views_) {
      Sum<false>(sum, view->gradient_data(), activation_->stored_values(), sum);
    }
  }

 private:
  CpuActivation* activation_;
  std::vector<std::unique_ptr<CpuActivation>> views_;
};

class CpuDropout final : public Kernel {
 public:
  CpuDropout(CpuContext* context, const KernelSpec& spec, const SampleLayout& layout, CpuActivation* input)
      : seed_(spec.seed),
        index_(spec.index),
        threshold_(DropoutThreshold(spec.layer.rate)),
        scale_(1 / (1 - spec.layer.rate)),
        layout_(layout),
        input_(input),
        output_(context, spec.in_place, input) {}

  Activation* output() override { return output_.get(); }

  void Forward(const float*, const Pass& pass) override {
    if (!output_.in_place()) Copy(input_->value_data(), input_->stored_values(), output_.get()->value_data());
    if (pass.mode == PassMode::kTraining) Apply(pass, output_.get()->value_data());
  }

  void Backward(const float*, const Pass& pass, float*) override {
    Apply(pass, output_.get()->gradient_data());
    if (!output_.in_place())
      Copy(output_.get()->gradient_data(), input_->stored_values(), input_->gradient_data());
  }

 private:
  void Apply(const Pass& pass, float* values) const {
    const int64_t grain = kGrain / layout_.stored() + 1;
    ParallelFor(pass.samples, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        ApplyToSample(MakeDropoutKey(seed_, index_, pass.sample_ids[i]), values + i * layout_.stored());
      }
    });
  }

  void ApplyToSample(DropoutKey key, float* values) const {
    switch (layout_.block) {
      case 4:
        return ApplyToBlocks<4>(key, values);
      case 8:
        return ApplyToBlocks<8>(key, values);
      case 16:
        return ApplyToBlocks<16>(key, values);
      default:
        return ApplyToBlocks<0>(key, values);
    }
  }

  // Channels that are side by side in memory are a whole plane apart in C x H x W order. With a block size
  // that the compiler knows, the loop over a few channels becomes a few vector instructions.
  template <uint32_t kBlock>
  void ApplyToBlocks(DropoutKey key, float* values) const {
    const auto positions = static_cast<uint32_t>(layout_.positions);
    const auto blocks = static_cast<uint32_t>(layout_.blocks);
    const uint32_t block = kBlock != 0 ? kBlock : static_cast<uint32_t>(layout_.block);
    const uint32_t threshold = threshold_;
    const float scale = scale_;
    for (uint32_t b = 0; b < blocks; ++b) {
      for (uint32_t p = 0; p < positions; ++p, values += block) {
        const uint32_t first = b * block * positions + p;
        for (uint32_t i = 0; i < block; ++i) {
          // For "drop ? 0 : scaled" g++ emits a branch, and does not vectorise.
          const uint32_t keep = DropoutHash(key, first + i * positions) < threshold ? 0u : ~0u;
          values[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(values[i] * scale) & keep);
        }
      }
    }
  }

  uint64_t seed_;
  int index_;
  uint32_t threshold_;
  float scale_;
  SampleLayout layout_;
  CpuActivation* input_;
  Output output_;
};

}  // namespace

void ReluBackward(const CpuActivation& activation) {
  float* const gradient = activation.gradient_data();
  ReluGradient(activation.value_data(), gradient, activation.stored_values(), gradient);
}

std::unique_ptr<Kernel> MakeCpuRelu(CpuContext* context, const KernelSpec& spec, CpuActivation* input) {
  return std::make_unique<CpuRelu>(context, spec, input);
}

std::unique_ptr<Kernel> MakeCpuAdd(CpuContext* context, const KernelSpec& spec, CpuActivation* first,
                                   CpuActivation* second) {
  return std::make_unique<CpuAdd>(context, spec, first, second);
}

std::unique_ptr<Fork> MakeCpuFork(CpuContext* context, CpuActivation* activation, int readers) {
  return std::make_unique<CpuFork>(context, activation, readers);
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuDropout(CpuContext* context, const KernelSpec& spec,
                                                       CpuActivation* input) {
  ASSIGN_OR_RETURN(const SampleLayout layout, LayoutOfSample(input->layout()));
  return std::make_unique<CpuDropout>(context, spec, layout.ByElement(), input);
}

}  // namespace catchment
