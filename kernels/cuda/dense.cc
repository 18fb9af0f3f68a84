// y = x W' + b.
#include <optional>

#include "kernels/cuda/device.h"
#include "kernels/cuda/factor.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/loops.h"
#include "kernels/cuda/node.h"

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
        units_(spec.output.channels),
        x_(device, input_.batch, inputs_),
        weight_(device, units_, inputs_),
        d_y_(device, input_.batch, units_) {
    forward_.emplace(device, GemmSpec{.transpose_b = true,
                                      .m = input_.batch,
                                      .n = units_,
                                      .k = inputs_,
                                      .lda = x_.stride(),
                                      .ldb = weight_.stride(),
                                      .ldc = units_,
                                      .bias = bias_,
                                      .relu = relu_});
    to_weight_.emplace(device, GemmSpec{.transpose_a = true,
                                        .m = units_,
                                        .n = inputs_,
                                        .k = input_.batch,
                                        .lda = d_y_.stride(),
                                        .ldb = x_.stride(),
                                        .ldc = inputs_});
    if (input_gradient_) {
      to_input_.emplace(device, GemmSpec{.m = input_.batch,
                                         .n = inputs_,
                                         .k = units_,
                                         .lda = d_y_.stride(),
                                         .ldb = weight_.stride(),
                                         .ldc = inputs_});
    }
  }

  void Forward(const Pass&) override {
    x_.Take(input_.value);
    weight_.Take(parameters->value());
    forward_->Run(x_.data(), weight_.data(), parameters->value() + inputs_ * units_, output->value);
  }

  void Backward(const Pass&) override {
    TakeOutputGradient(device_, *output, static_cast<int>(units_), relu_, d_y_.WriterOf(output->gradient),
                       d_y_.stride(), bias_ ? parameters->gradient() + inputs_ * units_ : nullptr);
    to_weight_->Run(d_y_.data(), x_.data(), nullptr, parameters->gradient());
    if (input_gradient_) to_input_->Run(d_y_.data(), weight_.data(), nullptr, input_.gradient);
  }

 private:
  Device* device_;
  const Tensor input_;
  const bool relu_, bias_, input_gradient_;
  const int64_t inputs_, units_;
  Factor x_, weight_, d_y_;
  std::optional<Gemm> forward_, to_weight_, to_input_;
};

}  // namespace

std::unique_ptr<Layer> MakeDense(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<Dense>(device, spec, input);
}

}  // namespace catchment::cuda
