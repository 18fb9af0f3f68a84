#include "kernels/cpu/elementwise.h"

#include <algorithm>
#include <bit>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/parallel.h"
#include "kernels/dropout_mask.h"

namespace catchment {
namespace {

constexpr int64_t kGrain = 1 << 15;

class CpuRelu final : public Kernel {
 public:
  explicit CpuRelu(CpuActivation* activation) : activation_(activation) {}

  Activation* output() override { return activation_; }

  void Forward(const float*, const Pass&) override {
    float* const values = activation_->value_data();
    ParallelFor(activation_->stored_values(), kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] = std::max(values[i], 0.0f);
    });
  }

  void Backward(const float*, const Pass&, float*) override { ReluBackward(*activation_); }

 private:
  CpuActivation* activation_;
};

// How one sample lies in memory: `blocks` of channels, one after another; in each, for every position,
// `block` channels side by side. N x C x H x W has block 1, but goes as one position of C*H*W "channels".
struct SampleLayout {
  int64_t blocks;
  int64_t positions;
  int64_t block;

  int64_t stored() const { return blocks * positions * block; }
};

absl::StatusOr<SampleLayout> LayoutOfSample(const dnnl::memory::desc& layout) {
  using tag = dnnl::memory::format_tag;
  const auto dims = layout.dims();
  if (layout == PlainLayout(dims)) {
    int64_t size = 1;
    for (size_t i = 1; i < dims.size(); ++i) size *= dims[i];
    return SampleLayout{1, 1, size};
  }
  const std::pair<tag, int64_t> candidates[] = {
      {tag::nhwc, dims[1]}, {tag::nChw4c, 4}, {tag::nChw8c, 8}, {tag::nChw16c, 16}};
  for (const auto& [format, block] : candidates) {
    if (dims.size() == 4 && layout == dnnl::memory::desc(dims, dnnl::memory::data_type::f32, format)) {
      return SampleLayout{(dims[1] + block - 1) / block, dims[2] * dims[3], block};
    }
  }
  return absl::UnimplementedError("dropout: oneDNN chose a memory layout that this program does not know");
}

class CpuDropout final : public Kernel {
 public:
  CpuDropout(const KernelSpec& spec, const SampleLayout& layout, CpuActivation* activation)
      : seed_(spec.seed),
        index_(spec.index),
        threshold_(DropoutThreshold(spec.layer.rate)),
        scale_(1 / (1 - spec.layer.rate)),
        layout_(layout),
        activation_(activation) {}

  Activation* output() override { return activation_; }

  void Forward(const float*, const Pass& pass) override {
    if (pass.training) Apply(pass, activation_->value_data());
  }

  void Backward(const float*, const Pass& pass, float*) override {
    if (pass.training) Apply(pass, activation_->gradient_data());
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

  // Channels side by side are a whole plane apart in C x H x W order. A block size known to the compiler
  // makes the loop over a few channels a few vector instructions.
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
          // With "drop ? 0 : scaled" g++ branches, and does not vectorise.
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
  CpuActivation* activation_;
};

}  // namespace

void ReluBackward(const CpuActivation& activation) {
  const float* const values = activation.value_data();
  float* const gradient = activation.gradient_data();
  ParallelFor(activation.stored_values(), kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) gradient[i] = values[i] > 0 ? gradient[i] : 0.0f;
  });
}

std::unique_ptr<Kernel> MakeCpuRelu(CpuActivation* activation) {
  return std::make_unique<CpuRelu>(activation);
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuDropout(const KernelSpec& spec, CpuActivation* activation) {
  const absl::StatusOr<SampleLayout> layout = LayoutOfSample(activation->layout());
  if (!layout.ok()) return layout.status();
  return std::make_unique<CpuDropout>(spec, *layout, activation);
}

}  // namespace catchment
