#include "kernels/cpu/conv2d.h"

#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/clock.h"
#include "kernels/cpu/elementwise.h"

namespace catchment {
namespace {

using dnnl::algorithm;
using dnnl::convolution_backward_data;
using dnnl::convolution_backward_weights;
using dnnl::convolution_forward;
using dnnl::memory;

struct Geometry {
  explicit Geometry(const KernelSpec& spec)
      : source{spec.batch_size, spec.layer.input.channels, spec.layer.input.height, spec.layer.input.width},
        output{spec.batch_size, spec.layer.output.channels, spec.layer.output.height,
               spec.layer.output.width},
        weight{output[1], source[1], spec.layer.kernel_size, spec.layer.kernel_size},
        bias{output[1]},
        groups(spec.layer.groups),
        has_bias(spec.layer.bias),
        stride{spec.layer.stride, spec.layer.stride},
        padding{spec.layer.padding, spec.layer.padding} {
    if (groups == 1) return;
    weight[0] /= groups;
    weight[1] /= groups;
    weight.insert(weight.begin(), groups);
  }

  int64_t weight_size() const {
    return std::accumulate(weight.begin(), weight.end(), int64_t{1}, std::multiplies<>());
  }
  int64_t parameters() const { return weight_size() + (has_bias ? bias[0] : 0); }
  memory::desc any_bias() const { return has_bias ? AnyLayout(bias) : memory::desc(); }
  // Without the batch size: smaller batches take what was measured for the first.
  std::string Key() const {
    return absl::StrCat(absl::StrJoin(weight, "x"), " over ", source[2], "x", source[3], " stride ",
                        stride[0], " padding ", padding[0]);
  }

  memory::dims source, output;
  memory::dims weight;  // filters x channels x k x k; with groups, groups x that of one
  memory::dims bias;
  int64_t groups;
  bool has_bias;
  memory::dims stride, padding;
};

using Arguments = std::vector<std::pair<int, memory>>;

convolution_forward::primitive_desc DescribeForward(CpuContext* context, const Geometry& g, algorithm a,
                                                    const memory::desc& source, const memory::desc& output,
                                                    bool relu) {
  dnnl::primitive_attr attributes = context->Attributes();
  if (relu) {
    dnnl::post_ops post;
    post.append_eltwise(1, algorithm::eltwise_relu, 0, 0);
    attributes.set_post_ops(post);
  }
  const convolution_forward::desc description(dnnl::prop_kind::forward_training, a, source,
                                              AnyLayout(g.weight), g.any_bias(), output, g.stride, g.padding,
                                              g.padding);
  return {description, attributes, context->engine()};
}

// The three passes are made for one algorithm each. The forward one decides how input and output lie in
// memory, the other two follow it.
class ForwardPass {
 public:
  ForwardPass(CpuContext* context, const Geometry& g, algorithm a, const CpuActivation* input, bool relu)
      : description_(DescribeForward(context, g, a, AnyLayout(g.source), AnyLayout(g.output), relu)),
        input_(context, input, description_.src_desc()),
        output_(context, description_.dst_desc()),
        weight_(context, g.weight, description_.weights_desc()),
        weight_size_(g.weight_size()) {
    Arguments arguments = {{DNNL_ARG_SRC, input_.value()},
                           {DNNL_ARG_WEIGHTS, weight_.memory()},
                           {DNNL_ARG_DST, output_.value()}};
    if (g.has_bias) {
      bias_.emplace(context, g.bias, description_.bias_desc());
      arguments.emplace_back(DNNL_ARG_BIAS, bias_->memory());
    }
    operation_.emplace(context, convolution_forward(description_), description_.scratchpad_desc(),
                       std::move(arguments));
  }

  InputPort* input() { return &input_; }
  CpuActivation* output() { return &output_; }

  void Run(const float* parameters) {
    input_.Pull();
    weight_.Pull(parameters);
    if (bias_) bias_->Pull(parameters + weight_size_);
    operation_->Run();
  }

 private:
  convolution_forward::primitive_desc description_;
  InputPort input_;
  CpuActivation output_;
  ParameterPort weight_;
  std::optional<ParameterPort> bias_;
  int64_t weight_size_;
  std::optional<Operation> operation_;
};

class BackwardWeightsPass {
 public:
  BackwardWeightsPass(CpuContext* context, const Geometry& g, algorithm a, const InputPort& input,
                      const CpuActivation& output)
      : description_(Describe(context, g, a, input.value().get_desc(), output.layout())),
        weight_(context, g.weight, description_.diff_weights_desc()),
        weight_size_(g.weight_size()) {
    Arguments arguments = {{DNNL_ARG_SRC, input.value()},
                           {DNNL_ARG_DIFF_DST, output.gradient()},
                           {DNNL_ARG_DIFF_WEIGHTS, weight_.memory()}};
    if (g.has_bias) {
      bias_.emplace(context, g.bias, description_.diff_bias_desc());
      arguments.emplace_back(DNNL_ARG_DIFF_BIAS, bias_->memory());
    }
    operation_.emplace(context, convolution_backward_weights(description_), description_.scratchpad_desc(),
                       std::move(arguments));
  }

  void Run(float* gradient) {
    weight_.Bind(gradient);
    if (bias_) bias_->Bind(gradient + weight_size_);
    operation_->Run();
    weight_.Push();
    if (bias_) bias_->Push();
  }

 private:
  static convolution_backward_weights::primitive_desc Describe(CpuContext* context, const Geometry& g,
                                                               algorithm a, const memory::desc& source,
                                                               const memory::desc& output) {
    const convolution_backward_weights::desc description(a, source, AnyLayout(g.weight), g.any_bias(), output,
                                                         g.stride, g.padding, g.padding);
    return {description, context->Attributes(), context->engine(),
            DescribeForward(context, g, a, AnyLayout(g.source), AnyLayout(g.output), false)};
  }

  convolution_backward_weights::primitive_desc description_;
  GradientPort weight_;
  std::optional<GradientPort> bias_;
  int64_t weight_size_;
  std::optional<Operation> operation_;
};

class BackwardDataPass {
 public:
  BackwardDataPass(CpuContext* context, const Geometry& g, algorithm a, InputPort* input,
                   const CpuActivation& output)
      : description_(Describe(context, g, a, input->gradient().get_desc(), output.layout())),
        input_(input),
        weight_(context, g.weight, description_.weights_desc()),
        operation_(context, convolution_backward_data(description_), description_.scratchpad_desc(),
                   {{DNNL_ARG_DIFF_SRC, input->gradient()},
                    {DNNL_ARG_WEIGHTS, weight_.memory()},
                    {DNNL_ARG_DIFF_DST, output.gradient()}}) {}

  void Run(const float* parameters) {
    weight_.Pull(parameters);
    operation_.Run();
    input_->Push();
  }

 private:
  static convolution_backward_data::primitive_desc Describe(CpuContext* context, const Geometry& g,
                                                            algorithm a, const memory::desc& source,
                                                            const memory::desc& output) {
    const convolution_backward_data::desc description(a, source, AnyLayout(g.weight), output, g.stride,
                                                      g.padding, g.padding);
    return {description, context->Attributes(), context->engine(),
            DescribeForward(context, g, a, AnyLayout(g.source), AnyLayout(g.output), false)};
  }

  convolution_backward_data::primitive_desc description_;
  InputPort* input_;
  ParameterPort weight_;
  Operation operation_;
};

// Seconds of the fastest of a few runs, after one that warms up.
template <typename Run>
double Measure(Run run) {
  constexpr int kRuns = 4;
  const SteadyClock clock;
  double best = std::numeric_limits<double>::infinity();
  run();
  for (int i = 0; i < kRuns; ++i) {
    const double start = clock.Now();
    run();
    best = std::min(best, clock.Now() - start);
  }
  return best;
}

std::vector<algorithm> Candidates(CpuContext* context, const Geometry& g, const std::string& pass) {
  constexpr algorithm kDirect = algorithm::convolution_direct, kAuto = algorithm::convolution_auto;
  // The second is for shapes that the first cannot do.
  if (context->deterministic()) {
    return g.source[1] < 8 ? std::vector{kDirect, kAuto} : std::vector{kAuto, kDirect};
  }
  const auto known = context->algorithms().find(pass + g.Key());
  if (known != context->algorithms().end()) return {known->second, kDirect, kAuto};
  return {kDirect, kAuto, algorithm::convolution_winograd};
}

// Makes the pass by make(algorithm), of the algorithm for which run(pass) is fastest; null if none can do it.
template <typename Make, typename Run>
auto MakeFastest(CpuContext* context, const Geometry& g, const std::string& pass, Make make, Run run)
    -> decltype(make(algorithm::convolution_auto)) {
  const bool measure = !context->deterministic() && !context->algorithms().contains(pass + g.Key());
  decltype(make(algorithm::convolution_auto)) best;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (algorithm candidate : Candidates(context, g, pass)) {
    auto made = TryMake([&] { return make(candidate); });
    if (!made) continue;
    if (!measure) return std::move(*made);
    const double seconds = Measure([&] { run(made->get()); });
    if (seconds >= best_seconds) continue;
    best_seconds = seconds;
    best = std::move(*made);
    context->algorithms()[pass + g.Key()] = candidate;
  }
  return best;
}

class CpuConv2d final : public Kernel {
 public:
  CpuConv2d(CpuContext* context, const KernelSpec& spec, const CpuActivation* input)
      : relu_(spec.relu), input_gradient_(spec.input_gradient) {
    const Geometry g(spec);
    std::vector<float> parameters(g.parameters());  // for measuring
    forward_ = MakeFastest(
        context, g, "forward ",
        [&](algorithm a) { return std::make_unique<ForwardPass>(context, g, a, input, relu_); },
        [&](ForwardPass* pass) { pass->Run(parameters.data()); });
    if (!forward_) return;
    backward_weights_ = MakeFastest(
        context, g, "weights ",
        [&](algorithm a) {
          return std::make_unique<BackwardWeightsPass>(context, g, a, *forward_->input(),
                                                       *forward_->output());
        },
        [&](BackwardWeightsPass* pass) { pass->Run(parameters.data()); });
    if (!input_gradient_) return;
    backward_data_ = MakeFastest(
        context, g, "data ",
        [&](algorithm a) {
          return std::make_unique<BackwardDataPass>(context, g, a, forward_->input(), *forward_->output());
        },
        [&](BackwardDataPass* pass) { pass->Run(parameters.data()); });
  }

  bool complete() const { return forward_ && backward_weights_ && (!input_gradient_ || backward_data_); }

  Activation* output() override { return forward_->output(); }

  void Forward(const float* parameters, const Pass&) override { forward_->Run(parameters); }

  void Backward(const float* parameters, const Pass&, float* gradient) override {
    if (relu_) ReluBackward(*forward_->output());
    backward_weights_->Run(gradient);
    if (input_gradient_) backward_data_->Run(parameters);
  }

 private:
  bool relu_;
  bool input_gradient_;
  std::unique_ptr<ForwardPass> forward_;
  std::unique_ptr<BackwardWeightsPass> backward_weights_;
  std::unique_ptr<BackwardDataPass> backward_data_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> MakeCpuConv2d(CpuContext* context, const KernelSpec& spec,
                                                      const CpuActivation* input) {
  auto kernel = std::make_unique<CpuConv2d>(context, spec, input);
  if (kernel->complete()) return kernel;
  return absl::UnimplementedError(absl::StrCat("layer ", spec.layer.name, ": oneDNN has no convolution ",
                                               Geometry(spec).Key(), " on this processor"));
}

}  // namespace catchment
