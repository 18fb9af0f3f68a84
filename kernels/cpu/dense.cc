#include "kernels/cpu/dense.h"

#include "kernels/cpu/elementwise.h"

namespace catchment {
namespace {

using dnnl::memory;

class CpuDense final : public Kernel {
 public:
  CpuDense(CpuContext* context, const KernelSpec& spec, const CpuActivation* input)
      : relu_(spec.relu),
        input_gradient_(spec.input_gradient),
        inputs_(spec.layer.fan_in),
        units_(spec.layer.output.channels),
        has_bias_(spec.layer.bias),
        input_(context, input, PlainLayout(input->layout().dims())),
        output_(context, PlainLayout({spec.batch_size, units_})),
        weight_(context->Unbound(PlainLayout({units_, inputs_}))),
        bias_(has_bias_ ? context->Unbound(PlainLayout({units_}))
                        : memory(memory::desc(), context->engine())),
        d_weight_(context->Unbound(weight_.get_desc())),
        d_bias_(has_bias_ ? context->Unbound(bias_.get_desc()) : bias_),
        source_(Reshaped(context, input_.value(), {spec.batch_size, inputs_})),
        d_source_(Reshaped(context, input_.gradient(), {spec.batch_size, inputs_})) {
    MakeForward(context);
    MakeBackwardWeights(context);
    if (input_gradient_) MakeBackwardData(context);
  }

  Activation* output() override { return &output_; }

  void Forward(const float* parameters, const Pass&) override {
    BindParameters(parameters);
    input_.Pull();
    forward_->Run();
  }

  void Backward(const float* parameters, const Pass&, float* gradient) override {
    if (relu_) ReluBackward(output_);
    d_weight_.set_data_handle(gradient);
    if (has_bias_) d_bias_.set_data_handle(gradient + inputs_ * units_);
    backward_weights_->Run();
    if (!input_gradient_) return;
    BindParameters(parameters);
    backward_data_->Run();
    input_.Push();
  }

 private:
  // oneDNN has no memory of const values; these two are only read.
  void BindParameters(const float* parameters) {
    weight_.set_data_handle(const_cast<float*>(parameters));
    if (has_bias_) bias_.set_data_handle(const_cast<float*>(parameters) + inputs_ * units_);
  }

  void MakeForward(CpuContext* context) {
    dnnl::primitive_attr attributes = context->Attributes();
    if (relu_) {
      dnnl::post_ops relu;
      relu.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
      attributes.set_post_ops(relu);
    }
    const dnnl::inner_product_forward::desc description(dnnl::prop_kind::forward_training, source_.get_desc(),
                                                        weight_.get_desc(), bias_.get_desc(),
                                                        output_.layout());
    const dnnl::inner_product_forward::primitive_desc primitive(description, attributes, context->engine());
    hint_ =
        dnnl::inner_product_forward::primitive_desc(description, context->Attributes(), context->engine());
    forward_.emplace(context, dnnl::inner_product_forward(primitive), primitive.scratchpad_desc(),
                     std::vector<std::pair<int, memory>>{{DNNL_ARG_SRC, source_},
                                                         {DNNL_ARG_WEIGHTS, weight_},
                                                         {DNNL_ARG_BIAS, bias_},
                                                         {DNNL_ARG_DST, output_.value()}});
  }

  void MakeBackwardWeights(CpuContext* context) {
    const dnnl::inner_product_backward_weights::desc description(source_.get_desc(), d_weight_.get_desc(),
                                                                 d_bias_.get_desc(), output_.layout());
    const dnnl::inner_product_backward_weights::primitive_desc primitive(description, context->Attributes(),
                                                                         context->engine(), hint_);
    backward_weights_.emplace(context, dnnl::inner_product_backward_weights(primitive),
                              primitive.scratchpad_desc(),
                              std::vector<std::pair<int, memory>>{{DNNL_ARG_SRC, source_},
                                                                  {DNNL_ARG_DIFF_DST, output_.gradient()},
                                                                  {DNNL_ARG_DIFF_WEIGHTS, d_weight_},
                                                                  {DNNL_ARG_DIFF_BIAS, d_bias_}});
  }

  void MakeBackwardData(CpuContext* context) {
    const dnnl::inner_product_backward_data::desc description(source_.get_desc(), weight_.get_desc(),
                                                              output_.layout());
    const dnnl::inner_product_backward_data::primitive_desc primitive(description, context->Attributes(),
                                                                      context->engine(), hint_);
    backward_data_.emplace(context, dnnl::inner_product_backward_data(primitive), primitive.scratchpad_desc(),
                           std::vector<std::pair<int, memory>>{{DNNL_ARG_DIFF_SRC, d_source_},
                                                               {DNNL_ARG_WEIGHTS, weight_},
                                                               {DNNL_ARG_DIFF_DST, output_.gradient()}});
  }

  bool relu_;
  bool input_gradient_;
  int64_t inputs_;
  int64_t units_;
  bool has_bias_;  // otherwise bias_ and d_bias_ are empty, and oneDNN leaves them out
  InputPort input_;
  CpuActivation output_;
  memory weight_, bias_, d_weight_, d_bias_;  // bound to the flat vectors in each pass
  memory source_, d_source_;
  dnnl::inner_product_forward::primitive_desc hint_;
  std::optional<Operation> forward_, backward_weights_, backward_data_;
};

}  // namespace

std::unique_ptr<Kernel> MakeCpuDense(CpuContext* context, const KernelSpec& spec,
                                     const CpuActivation* input) {
  return std::make_unique<CpuDense>(context, spec, input);
}

}  // namespace catchment
