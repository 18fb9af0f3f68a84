// Layer norm, on oneDNN.
#include "kernels/cpu/layers.h"

namespace catchment {
namespace {

using dnnl::layer_normalization_backward;
using dnnl::layer_normalization_forward;
using dnnl::memory;
using dnnl::normalization_flags;

// Layer norm. Rows are samples, or the steps of sequences.
class CpuLayerNorm final : public Kernel {
 public:
  CpuLayerNorm(CpuContext* context, const KernelSpec& spec, const CpuActivation* input)
      : width_(spec.layer.tensors[0].size()),
        rows_(spec.batch_size * spec.layer.input.size() / width_),
        input_gradient_(spec.input_gradient),
        input_(context, input, PlainLayout(input->layout().dims())),
        output_(context, PlainLayout(DimsOf(spec.layer.output, spec.batch_size))),
        source_(Reshaped(context, input_.value(), {rows_, width_})),
        weight_(context->Unbound(PlainLayout({width_}))),
        bias_(context->Unbound(PlainLayout({width_}))),
        d_weight_(context->Unbound(PlainLayout({width_}))),
        d_bias_(context->Unbound(PlainLayout({width_}))),
        // The input's gradient is written even if it is not needed: oneDNN cannot compute the parameters'
        // gradient alone.
        d_source_(Reshaped(context, input_.gradient(), {rows_, width_})) {
    const memory destination = Reshaped(context, output_.value(), {rows_, width_});
    const memory d_destination = Reshaped(context, output_.gradient(), {rows_, width_});
    const auto flags = normalization_flags::use_scale | normalization_flags::use_shift;
    const layer_normalization_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, source_.get_desc(), spec.layer.epsilon, flags},
        context->Attributes(), context->engine());
    mean_ = context->Allocate(forward.mean_desc());
    variance_ = context->Allocate(forward.variance_desc());
    forward_.emplace(context, layer_normalization_forward(forward), forward.scratchpad_desc(),
                     std::vector<std::pair<int, memory>>{{DNNL_ARG_SRC, source_},
                                                         {DNNL_ARG_DST, destination},
                                                         {DNNL_ARG_MEAN, mean_},
                                                         {DNNL_ARG_VARIANCE, variance_},
                                                         {DNNL_ARG_SCALE, weight_},
                                                         {DNNL_ARG_SHIFT, bias_}});
    const layer_normalization_backward::primitive_desc backward(
        {dnnl::prop_kind::backward, source_.get_desc(), source_.get_desc(), spec.layer.epsilon, flags},
        context->Attributes(), context->engine(), forward);
    backward_.emplace(context, layer_normalization_backward(backward), backward.scratchpad_desc(),
                      std::vector<std::pair<int, memory>>{{DNNL_ARG_SRC, source_},
                                                          {DNNL_ARG_DIFF_DST, d_destination},
                                                          {DNNL_ARG_MEAN, mean_},
                                                          {DNNL_ARG_VARIANCE, variance_},
                                                          {DNNL_ARG_SCALE, weight_},
                                                          {DNNL_ARG_SHIFT, bias_},
                                                          {DNNL_ARG_DIFF_SRC, d_source_},
                                                          {DNNL_ARG_DIFF_SCALE, d_weight_},
                                                          {DNNL_ARG_DIFF_SHIFT, d_bias_}});
  }

  Activation* output() override { return &output_; }

  void Forward(const float* parameters, const Pass&) override {
    Bind(parameters);
    input_.Pull();
    forward_->Run();
  }

  void Backward(const float* parameters, const Pass&, float* gradient) override {
    Bind(parameters);
    d_weight_.set_data_handle(gradient);
    d_bias_.set_data_handle(gradient + width_);
    backward_->Run();
    if (input_gradient_) input_.Push();
  }

 private:
  // oneDNN has no type for memory of const values; these two are only read.
  void Bind(const float* parameters) {
    weight_.set_data_handle(const_cast<float*>(parameters));
    bias_.set_data_handle(const_cast<float*>(parameters) + width_);
  }

  int64_t width_;
  int64_t rows_;
  bool input_gradient_;
  InputPort input_;
  CpuActivation output_;
  memory source_;
  memory weight_, bias_, d_weight_, d_bias_;  // bound to the flat vectors in each pass
  memory d_source_, mean_, variance_;
  std::optional<Operation> forward_, backward_;
};

}  // namespace

std::unique_ptr<Kernel> MakeCpuLayerNorm(CpuContext* context, const KernelSpec& spec,
                                         const CpuActivation* input) {
  return std::make_unique<CpuLayerNorm>(context, spec, input);
}

}  // namespace catchment
