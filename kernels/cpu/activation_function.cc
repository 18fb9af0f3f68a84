// Gelu, tanh, sigmoid and softmax, on oneDNN.
#include "kernels/cpu/layers.h"

namespace catchment {
namespace {

using dnnl::algorithm;
using dnnl::eltwise_backward;
using dnnl::eltwise_forward;
using dnnl::memory;

// Returns oneDNN's algorithm. The derivatives of tanh and sigmoid are computed from the output, that of gelu
// from the input.
algorithm AlgorithmOf(LayerKind kind) {
  if (kind == LayerKind::kTanh) return algorithm::eltwise_tanh_use_dst_for_bwd;
  if (kind == LayerKind::kSigmoid) return algorithm::eltwise_logistic_use_dst_for_bwd;
  return algorithm::eltwise_gelu_erf;
}

class CpuActivationFunction final : public Kernel {
 public:
  CpuActivationFunction(CpuContext* context, const KernelSpec& spec, const CpuActivation* input)
      : output_(context, input->layout()) {
    const algorithm function = AlgorithmOf(spec.layer.kind);
    const eltwise_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, function, input->layout(), 0, 0}, context->Attributes(),
        context->engine());
    forward_.emplace(
        context, eltwise_forward(forward), forward.scratchpad_desc(),
        std::vector<std::pair<int, memory>>{{DNNL_ARG_SRC, input->value()}, {DNNL_ARG_DST, output_.value()}});
    if (!spec.input_gradient) return;
    const eltwise_backward::primitive_desc backward({function, input->layout(), input->layout(), 0, 0},
                                                    context->Attributes(), context->engine(), forward);
    const bool of_input = function == algorithm::eltwise_gelu_erf;
    backward_.emplace(context, eltwise_backward(backward), backward.scratchpad_desc(),
                      std::vector<std::pair<int, memory>>{{of_input ? DNNL_ARG_SRC : DNNL_ARG_DST,
                                                           of_input ? input->value() : output_.value()},
                                                          {DNNL_ARG_DIFF_DST, output_.gradient()},
                                                          {DNNL_ARG_DIFF_SRC, input->gradient()}});
  }

  Activation* output() override { return &output_; }
  void Forward(const float*, const Pass&) override { forward_->Run(); }
  void Backward(const float*, const Pass&, float*) override {
    if (backward_) backward_->Run();
  }

 private:
  CpuActivation output_;
  std::optional<Operation> forward_, backward_;
};

// Softmax over the last dimension: a vector, or each step of a sequence.
class CpuSoftmax final : public Kernel {
 public:
  CpuSoftmax(CpuContext* context, const KernelSpec& spec, const CpuActivation* input)
      : input_(context, input, PlainLayout(input->layout().dims())),
        output_(context, PlainLayout(DimsOf(spec.layer.output, spec.batch_size))) {
    const memory::dims dims = output_.layout().dims();
    const int axis = static_cast<int>(dims.size()) - 1;
    const dnnl::softmax_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, output_.layout(), axis}, context->Attributes(),
        context->engine());
    forward_.emplace(
        context, dnnl::softmax_forward(forward), forward.scratchpad_desc(),
        std::vector<std::pair<int, memory>>{{DNNL_ARG_SRC, Reshaped(context, input_.value(), dims)},
                                            {DNNL_ARG_DST, output_.value()}});
    if (!spec.input_gradient) return;
    const dnnl::softmax_backward::primitive_desc backward({output_.layout(), output_.layout(), axis},
                                                          context->Attributes(), context->engine(), forward);
    backward_.emplace(
        context, dnnl::softmax_backward(backward), backward.scratchpad_desc(),
        std::vector<std::pair<int, memory>>{{DNNL_ARG_DST, output_.value()},
                                            {DNNL_ARG_DIFF_DST, output_.gradient()},
                                            {DNNL_ARG_DIFF_SRC, Reshaped(context, input_.gradient(), dims)}});
  }

  Activation* output() override { return &output_; }

  void Forward(const float*, const Pass&) override {
    input_.Pull();
    forward_->Run();
  }

  void Backward(const float*, const Pass&, float*) override {
    if (!backward_) return;
    backward_->Run();
    input_.Push();
  }

 private:
  InputPort input_;
  CpuActivation output_;
  std::optional<Operation> forward_, backward_;
};

}  // namespace

std::unique_ptr<Kernel> MakeCpuActivationFunction(CpuContext* context, const KernelSpec& spec,
                                                  const CpuActivation* input) {
  return std::make_unique<CpuActivationFunction>(context, spec, input);
}

std::unique_ptr<Kernel> MakeCpuSoftmax(CpuContext* context, const KernelSpec& spec,
                                       const CpuActivation* input) {
  return std::make_unique<CpuSoftmax>(context, spec, input);
}

}  // namespace catchment
