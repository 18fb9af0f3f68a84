// y = x W' + b.
#include <optional>

#include "kernels/cuda/device.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/node.h"
#include "kernels/cuda/relu_gradient.h"
#include "kernels/cuda/sum_columns.h"

namespace catchment::cuda {
namespace {

class Dense final : public Layer {
 public:
  Dense(Device* device, const CatchmentCudaLayer& spec, const Tensor& input)
      : Layer(device, spec, spec.output.channels * (input.sample_size() + (spec.bias != 0))),
        device_(device),
        input_(input),
        relu_(spec.relu != 0),
        bias_(spec.bias != 0),
        input_gradient_(spec.input_gradient != 0),
        inputs_(input.sample_size()),
        units_(spec.output.channels) {
    // Biases begin wherever the weights end.
    const int alignment = inputs_ * units_ % 64 == 0 ? 256 : 4;
    forward_.emplace(device, GemmSpec{.transpose_b = true,
                                      .m = input_.batch,
                                      .n = units_,
                                      .k = inputs_,
                                      .lda = inputs_,
                                      .ldb = inputs_,
                                      .ldc = units_,
                                      .bias = bias_,
                                      .relu = relu_,
                                      .alignment = alignment});
    to_weight_.emplace(device, GemmSpec{.transpose_a = true,
                                        .m = units_,
                                        .n = inputs_,
                                        .k = input_.batch,
                                        .lda = units_,
                                        .ldb = inputs_,
                                        .ldc = inputs_});
    if (input_gradient_) {
      to_input_.emplace(
          device,
          GemmSpec{
              .m = input_.batch, .n = inputs_, .k = units_, .lda = units_, .ldb = inputs_, .ldc = inputs_});
    }
  }

  void Forward(const Pass&) override {
    forward_->Run(input_.value, parameters->value(), parameters->value() + inputs_ * units_, output->value);
  }

  void Backward(const Pass&) override {
    if (relu_) MaskByRelu(device_, output);
    to_weight_->Run(output->gradient, input_.value, nullptr, parameters->gradient());
    if (bias_) {
      SumColumns(device_, input_.batch, static_cast<int>(units_), output->gradient,
                 parameters->gradient() + inputs_ * units_);
    }
    if (input_gradient_) to_input_->Run(output->gradient, parameters->value(), nullptr, input_.gradient);
  }

 private:
  Device* device_;
  const Tensor input_;
  const bool relu_, bias_, input_gradient_;
  const int64_t inputs_, units_;
  std::optional<Gemm> forward_, to_weight_, to_input_;
};

}  // namespace

std::unique_ptr<Layer> MakeDense(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<Dense>(device, spec, input);
}

}  // namespace catchment::cuda
