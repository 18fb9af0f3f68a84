// Max and average pooling on oneDNN, in the layout of the input, or in another one if oneDNN has only
// reference loops for that. For the maximum, a workspace records which value of each window was the largest.
// The average of whole channels is computed in loops of our own.
#include "common/base/status_macros.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/layers.h"
#include "kernels/cpu/parallel.h"

namespace catchment {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using dnnl::pooling_backward;
using dnnl::pooling_forward;

class CpuPool final : public Kernel {
 public:
  CpuPool(CpuContext* context, const KernelSpec& spec, const CpuActivation* input)
      : algorithm_(spec.layer.kind == LayerKind::kMaxPool ? algorithm::pooling_max
                                                          : algorithm::pooling_avg_include_padding),
        window_{spec.layer.kernel_size, spec.layer.kernel_size},
        stride_{spec.layer.stride, spec.layer.stride},
        padding_{spec.layer.padding, spec.layer.padding},
        input_gradient_(spec.input_gradient),
        forward_description_(MakeForward(context, spec, input->layout())),
        input_(context, input, forward_description_.src_desc()),
        output_(context, forward_description_.dst_desc()) {
    std::vector<std::pair<int, memory>> arguments = {{DNNL_ARG_SRC, input_.value()},
                                                     {DNNL_ARG_DST, output_.value()}};
    if (algorithm_ == algorithm::pooling_max) {
      workspace_ = context->Allocate(forward_description_.workspace_desc());
      arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace_);
    }
    forward_.emplace(context, pooling_forward(forward_description_), forward_description_.scratchpad_desc(),
                     std::move(arguments));
    if (input_gradient_) MakeBackward(context);
  }

  Activation* output() override { return &output_; }
  void Forward(const float*, const Pass&) override {
    input_.Pull();
    forward_->Run();
  }
  void Backward(const float*, const Pass&, float*) override {
    if (!input_gradient_) return;
    backward_->Run();
    input_.Push();
  }

 private:
  // Describes the pooling in the input's layout, or in the first other one for which oneDNN has compiled
  // kernels: for plain order it has none with AVX2.
  pooling_forward::primitive_desc MakeForward(CpuContext* context, const KernelSpec& spec,
                                              const memory::desc& input) const {
    using tag = memory::format_tag;
    const memory::dims output = DimsOf(spec.layer.output, spec.batch_size);
    const auto describe = [&](const memory::desc& layout) -> pooling_forward::primitive_desc {
      const pooling_forward::desc description(dnnl::prop_kind::forward_training, algorithm_, layout,
                                              AnyLayout(output), stride_, window_, padding_, padding_);
      return {description, context->Attributes(), context->engine()};
    };
    for (const memory::desc& layout : {input, memory::desc(input.dims(), memory::data_type::f32, tag::nhwc),
                                       memory::desc(input.dims(), memory::data_type::f32, tag::nChw8c)}) {
      const auto forward = TryMake([&] { return describe(layout); });
      if (!forward || IsReferenceLoop(forward->impl_info_str())) continue;
      const auto backward = TryMake([&] { return DescribeBackward(context, *forward); });
      if (backward && !IsReferenceLoop(backward->impl_info_str())) return *forward;
    }
    return describe(input);
  }

  pooling_backward::primitive_desc DescribeBackward(CpuContext* context,
                                                    const pooling_forward::primitive_desc& forward) const {
    const pooling_backward::desc description(algorithm_, forward.src_desc(), forward.dst_desc(), stride_,
                                             window_, padding_, padding_);
    return {description, context->Attributes(), context->engine(), forward};
  }

  void MakeBackward(CpuContext* context) {
    const pooling_backward::primitive_desc primitive = DescribeBackward(context, forward_description_);
    std::vector<std::pair<int, memory>> arguments = {{DNNL_ARG_DIFF_SRC, input_.gradient()},
                                                     {DNNL_ARG_DIFF_DST, output_.gradient()}};
    if (workspace_) arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace_);
    backward_.emplace(context, pooling_backward(primitive), primitive.scratchpad_desc(),
                      std::move(arguments));
  }

  algorithm algorithm_;
  memory::dims window_;
  memory::dims stride_;
  memory::dims padding_;
  bool input_gradient_;
  pooling_forward::primitive_desc forward_description_;
  InputPort input_;
  CpuActivation output_;
  memory workspace_;  // the positions of the maxima
  std::optional<Operation> forward_;
  std::optional<Operation> backward_;
};

class CpuGlobalAveragePool final : public Kernel {
 public:
  CpuGlobalAveragePool(CpuContext* context, const KernelSpec& spec, const SampleLayout& layout,
                       const CpuActivation* input)
      : batch_size_(spec.batch_size),
        channels_(spec.layer.input.channels),
        layout_(layout),
        input_(input),
        output_(context, PlainLayout(DimsOf(spec.layer.output, spec.batch_size))) {}

  Activation* output() override { return &output_; }

  void Forward(const float*, const Pass&) override {
    const float scale = 1.0f / static_cast<float>(layout_.positions);
    ForEachBlock([&](const float* values, float*, int64_t channels, float* means, const float*) {
      for (int64_t c = 0; c < channels; ++c) means[c] = 0;
      for (int64_t p = 0; p < layout_.positions; ++p, values += layout_.block) {
        for (int64_t c = 0; c < channels; ++c) means[c] += values[c];
      }
      for (int64_t c = 0; c < channels; ++c) means[c] *= scale;
    });
  }

  void Backward(const float*, const Pass&, float*) override {
    const float scale = 1.0f / static_cast<float>(layout_.positions);
    ForEachBlock([&](const float*, float* gradient, int64_t channels, float*, const float* d_means) {
      for (int64_t p = 0; p < layout_.positions; ++p, gradient += layout_.block) {
        for (int64_t c = 0; c < channels; ++c) gradient[c] = scale * d_means[c];
        for (int64_t c = channels; c < layout_.block; ++c) gradient[c] = 0;
      }
    });
  }

 private:
  // Calls f(values, their gradient, number of channels, their means, the means' gradient) for each block of
  // channels of each sample.
  template <typename F>
  void ForEachBlock(F f) {
    const int64_t size = layout_.positions * layout_.block;
    ParallelFor(batch_size_ * layout_.blocks, (1 << 14) / size + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % layout_.blocks * layout_.block;
        const int64_t mean = i / layout_.blocks * channels_ + first;
        f(input_->value_data() + i * size, input_->gradient_data() + i * size,
          std::min(layout_.block, channels_ - first), output_.value_data() + mean,
          output_.gradient_data() + mean);
      }
    });
  }

  int64_t batch_size_;
  int64_t channels_;
  SampleLayout layout_;
  const CpuActivation* input_;
  CpuActivation output_;
};

}  // namespace

std::unique_ptr<Kernel> MakeCpuPool(CpuContext* context, const KernelSpec& spec, const CpuActivation* input) {
  return std::make_unique<CpuPool>(context, spec, input);
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuGlobalAveragePool(CpuContext* context, const KernelSpec& spec,
                                                                 const CpuActivation* input) {
  ASSIGN_OR_RETURN(const SampleLayout layout, LayoutOfSample(input->layout()));
  return std::make_unique<CpuGlobalAveragePool>(context, spec, layout, input);
}

}  // namespace catchment
