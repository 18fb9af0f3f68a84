#include "kernels/cpu/max_pool.h"

namespace catchment {
namespace {

using dnnl::memory;
using dnnl::pooling_backward;
using dnnl::pooling_forward;

memory::dims OutputDims(const KernelSpec& spec) {
  const SampleShape& shape = spec.layer.output;
  return {spec.batch_size, shape.channels, shape.height, shape.width};
}

class CpuMaxPool final : public Kernel {
 public:
  CpuMaxPool(CpuContext* context, const KernelSpec& spec, const CpuActivation* input)
      : window_{spec.layer.kernel_size, spec.layer.kernel_size},
        stride_{spec.layer.stride, spec.layer.stride},
        input_gradient_(spec.input_gradient),
        forward_description_(MakeForward(context, spec, input)),
        output_(context, forward_description_.dst_desc()),
        workspace_(context->Allocate(forward_description_.workspace_desc())),
        forward_(context, pooling_forward(forward_description_), forward_description_.scratchpad_desc(),
                 {{DNNL_ARG_SRC, input->value()},
                  {DNNL_ARG_DST, output_.value()},
                  {DNNL_ARG_WORKSPACE, workspace_}}) {
    if (input_gradient_) MakeBackward(context, input);
  }

  Activation* output() override { return &output_; }
  void Forward(const float*, const Pass&) override { forward_.Run(); }
  void Backward(const float*, const Pass&, float*) override {
    if (input_gradient_) backward_->Run();
  }

 private:
  pooling_forward::primitive_desc MakeForward(CpuContext* context, const KernelSpec& spec,
                                              const CpuActivation* input) const {
    const pooling_forward::desc description(dnnl::prop_kind::forward_training, dnnl::algorithm::pooling_max,
                                            input->layout(), AnyLayout(OutputDims(spec)), stride_, window_,
                                            {0, 0}, {0, 0});
    return {description, context->Attributes(), context->engine()};
  }

  void MakeBackward(CpuContext* context, const CpuActivation* input) {
    const pooling_backward::desc description(dnnl::algorithm::pooling_max, input->layout(), output_.layout(),
                                             stride_, window_, {0, 0}, {0, 0});
    const pooling_backward::primitive_desc primitive(description, context->Attributes(), context->engine(),
                                                     forward_description_);
    backward_.emplace(context, pooling_backward(primitive), primitive.scratchpad_desc(),
                      std::vector<std::pair<int, memory>>{{DNNL_ARG_DIFF_SRC, input->gradient()},
                                                          {DNNL_ARG_DIFF_DST, output_.gradient()},
                                                          {DNNL_ARG_WORKSPACE, workspace_}});
  }

  memory::dims window_;
  memory::dims stride_;
  bool input_gradient_;
  pooling_forward::primitive_desc forward_description_;
  CpuActivation output_;
  memory workspace_;
  Operation forward_;
  std::optional<Operation> backward_;
};

}  // namespace

std::unique_ptr<Kernel> MakeCpuMaxPool(CpuContext* context, const KernelSpec& spec,
                                       const CpuActivation* input) {
  return std::make_unique<CpuMaxPool>(context, spec, input);
}

}  // namespace catchment
