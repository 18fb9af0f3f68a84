#include "kernels/cpu/conv_pass.h"

#include <optional>
#include <utility>
#include <vector>

#include "kernels/cpu/winograd.h"

namespace catchment {
namespace {

using dnnl::memory;

using Arguments = std::vector<std::pair<int, memory>>;

Operation MakeOperation(CpuContext* context, const ConvDescription& description, Arguments arguments) {
  return {context, dnnl::primitive(description.primitive), description.primitive.scratchpad_desc(),
          std::move(arguments)};
}

class Forward final : public ConvForward {
 public:
  Forward(CpuContext* context, const ConvGeometry& g, const ConvDescription& description,
          const memory& source)
      : source_(context, source, description.source),
        output_(context, description.output),
        weight_(context, g.weight, description.weight),
        weight_size_(g.weight_size()) {
    Arguments arguments = {{DNNL_ARG_SRC, source_.memory()},
                           {DNNL_ARG_WEIGHTS, weight_.memory()},
                           {DNNL_ARG_DST, output_.value()}};
    if (g.has_bias) {
      bias_.emplace(context, g.bias, description.bias);
      arguments.emplace_back(DNNL_ARG_BIAS, bias_->memory());
    }
    operation_.emplace(MakeOperation(context, description, std::move(arguments)));
  }

  const memory& source() const override { return source_.memory(); }
  CpuActivation* output() override { return &output_; }

  void Run(const float* parameters, float*) override {
    source_.Pull();
    weight_.Pull(parameters);
    if (bias_) bias_->Pull(parameters + weight_size_);
    operation_->Run();
  }

 private:
  ReadPort source_;
  CpuActivation output_;
  ParameterPort weight_;
  std::optional<ParameterPort> bias_;
  int64_t weight_size_;
  std::optional<Operation> operation_;
};

class BackwardWeights final : public ConvPass {
 public:
  BackwardWeights(CpuContext* context, const ConvGeometry& g, const ConvDescription& description,
                  const memory& source, const memory& d_output)
      : source_(context, source, description.source),
        d_output_(context, d_output, description.output),
        weight_(context, g.weight, description.weight),
        weight_size_(g.weight_size()) {
    Arguments arguments = {{DNNL_ARG_SRC, source_.memory()},
                           {DNNL_ARG_DIFF_DST, d_output_.memory()},
                           {DNNL_ARG_DIFF_WEIGHTS, weight_.memory()}};
    if (g.has_bias) {
      bias_.emplace(context, g.bias, description.bias);
      arguments.emplace_back(DNNL_ARG_DIFF_BIAS, bias_->memory());
    }
    operation_.emplace(MakeOperation(context, description, std::move(arguments)));
  }

  void Run(const float*, float* gradient) override {
    source_.Pull();
    d_output_.Pull();
    weight_.Bind(gradient);
    if (bias_) bias_->Bind(gradient + weight_size_);
    operation_->Run();
    weight_.Push();
    if (bias_) bias_->Push();
  }

 private:
  ReadPort source_;
  ReadPort d_output_;
  GradientPort weight_;
  std::optional<GradientPort> bias_;
  int64_t weight_size_;
  std::optional<Operation> operation_;
};

class BackwardData final : public ConvPass {
 public:
  BackwardData(CpuContext* context, const ConvGeometry& g, const ConvDescription& description,
               const memory& d_source, const memory& d_output)
      : d_source_(context, d_source, description.source),
        d_output_(context, d_output, description.output),
        weight_(context, g.weight, description.weight),
        operation_(MakeOperation(context, description,
                                 {{DNNL_ARG_DIFF_SRC, d_source_.memory()},
                                  {DNNL_ARG_WEIGHTS, weight_.memory()},
                                  {DNNL_ARG_DIFF_DST, d_output_.memory()}})) {}

  void Run(const float* parameters, float*) override {
    d_output_.Pull();
    weight_.Pull(parameters);
    operation_.Run();
    d_source_.Push();
  }

 private:
  WritePort d_source_;
  ReadPort d_output_;
  ParameterPort weight_;
  Operation operation_;
};

}  // namespace

std::unique_ptr<ConvForward> MakeConvForward(CpuContext* context, const ConvGeometry& g,
                                             const ConvDescription& description, const memory& source) {
  if (description.algorithm == ConvAlgorithm::kTiledWinograd) {
    return MakeWinogradForward(context, g, description, source);
  }
  return std::make_unique<Forward>(context, g, description, source);
}

std::unique_ptr<ConvPass> MakeConvBackwardWeights(CpuContext* context, const ConvGeometry& g,
                                                  const ConvDescription& description, const memory& source,
                                                  const memory& d_output) {
  if (description.algorithm == ConvAlgorithm::kTiledWinograd) {
    return MakeWinogradBackwardWeights(context, g, description, source, d_output);
  }
  if (description.algorithm == ConvAlgorithm::kFewChannels) {
    return MakeFewChannelsBackwardWeights(g, description, source, d_output);
  }
  return std::make_unique<BackwardWeights>(context, g, description, source, d_output);
}

std::unique_ptr<ConvPass> MakeConvBackwardData(CpuContext* context, const ConvGeometry& g,
                                               const ConvDescription& description, const memory& d_source,
                                               const memory& d_output) {
  if (description.algorithm == ConvAlgorithm::kTiledWinograd) {
    return MakeWinogradBackwardData(context, g, description, d_source, d_output);
  }
  return std::make_unique<BackwardData>(context, g, description, d_source, d_output);
}

}  // namespace catchment
