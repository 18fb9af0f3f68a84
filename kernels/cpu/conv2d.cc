// Conv2d, on oneDNN, and on our own loops if oneDNN's compiled kernels are slow. How each of the three
// passes is computed (layouts and algorithm) is chosen when the kernel is created: conv_choice.h.
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/conv_choice.h"
#include "kernels/cpu/layers.h"

namespace catchment {
namespace {

class CpuConv2d final : public Kernel {
 public:
  CpuConv2d(bool relu, ConvPasses passes) : relu_(relu), passes_(std::move(passes)) {}

  Activation* output() override { return passes_.forward->output(); }

  void Forward(const float* parameters, const Pass&) override { passes_.forward->Run(parameters, nullptr); }

  void Backward(const float* parameters, const Pass&, float* gradient) override {
    if (relu_) ReluBackward(*passes_.forward->output());
    passes_.weights->Run(parameters, gradient);
    if (passes_.data) passes_.data->Run(parameters, gradient);
  }

 private:
  bool relu_;
  ConvPasses passes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuConv2d(CpuContext* context, ConvChoices* choices,
                                                      const KernelSpec& spec, const CpuActivation* input) {
  const ConvSpec conv = {ConvGeometry(spec), spec.relu, spec.input_gradient};
  ConvPasses passes = MakeConvPasses(context, choices, conv, *input);
  if (passes.complete(conv)) return std::make_unique<CpuConv2d>(spec.relu, std::move(passes));
  return absl::UnimplementedError(absl::StrCat("layer ", spec.layer.name, ": oneDNN has no convolution ",
                                               conv.geometry.Key(), " on this processor"));
}

}  // namespace catchment
