#include "kernels/cpu/conv_description.h"

#include "kernels/cpu/conv_pass.h"
#include "kernels/cpu/winograd.h"

namespace catchment {
namespace {

using dnnl::convolution_backward_data;
using dnnl::convolution_backward_weights;
using dnnl::convolution_forward;
using dnnl::memory;

memory::desc Resolve(ConvLayout layout, const memory::dims& dims, const memory::desc& given) {
  switch (layout) {
    case ConvLayout::kAny:
      return AnyLayout(dims);
    case ConvLayout::kGiven:
      return given;
    case ConvLayout::kPlain:
      return PlainLayout(dims);
    case ConvLayout::kChannelsLast:
      return {dims, memory::data_type::f32, memory::format_tag::nhwc};
  }
  return given;
}

dnnl::algorithm ToOneDnn(ConvAlgorithm algorithm) {
  switch (algorithm) {
    case ConvAlgorithm::kDirect:
      return dnnl::algorithm::convolution_direct;
    case ConvAlgorithm::kWinograd:
      return dnnl::algorithm::convolution_winograd;
    default:
      return dnnl::algorithm::convolution_auto;
  }
}

memory::desc AnyBias(const ConvGeometry& g) { return g.has_bias ? AnyLayout(g.bias) : memory::desc(); }

convolution_forward::primitive_desc MakeForward(CpuContext* context, const ConvGeometry& g,
                                                ConvAlgorithm algorithm, const memory::desc& source,
                                                const memory::desc& output, bool relu) {
  dnnl::primitive_attr attributes = context->Attributes();
  if (relu) {
    dnnl::post_ops post;
    post.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
    attributes.set_post_ops(post);
  }
  const convolution_forward::desc description(dnnl::prop_kind::forward_training, ToOneDnn(algorithm), source,
                                              AnyLayout(g.weight), AnyBias(g), output, g.stride, g.padding,
                                              g.padding);
  return {description, attributes, context->engine()};
}

// Returns the forward pass that oneDNN needs for the description of a backward pass.
convolution_forward::primitive_desc Hint(CpuContext* context, const ConvGeometry& g,
                                         ConvAlgorithm algorithm) {
  return MakeForward(context, g, algorithm, AnyLayout(g.source), AnyLayout(g.output), false);
}

}  // namespace

std::optional<ConvDescription> DescribeForward(CpuContext* context, const ConvGeometry& g, ConvMethod method,
                                               const memory::desc& source, bool relu) {
  if (method.algorithm == ConvAlgorithm::kTiledWinograd) return DescribeTiledWinograd(g, relu);
  if (method.algorithm == ConvAlgorithm::kFewChannels) return std::nullopt;
  return TryMake([&] {
    const auto made = MakeForward(context, g, method.algorithm, Resolve(method.source, g.source, source),
                                  Resolve(method.output, g.output, AnyLayout(g.output)), relu);
    return ConvDescription{
        method.algorithm, made,           made.impl_info_str(), made.src_desc(), made.weights_desc(),
        made.bias_desc(), made.dst_desc()};
  });
}

std::optional<ConvDescription> DescribeBackwardWeights(CpuContext* context, const ConvGeometry& g,
                                                       ConvMethod method, const memory::desc& source,
                                                       const memory::desc& output) {
  if (method.algorithm == ConvAlgorithm::kTiledWinograd) return DescribeTiledWinograd(g, false);
  if (method.algorithm == ConvAlgorithm::kFewChannels) return DescribeFewChannels(g, source, output);
  return TryMake([&] {
    const convolution_backward_weights::desc description(
        ToOneDnn(method.algorithm), Resolve(method.source, g.source, source), AnyLayout(g.weight), AnyBias(g),
        Resolve(method.output, g.output, output), g.stride, g.padding, g.padding);
    const convolution_backward_weights::primitive_desc made(
        description, context->Attributes(), context->engine(), Hint(context, g, method.algorithm));
    return ConvDescription{method.algorithm,         made,
                           made.impl_info_str(),     made.src_desc(),
                           made.diff_weights_desc(), made.diff_bias_desc(),
                           made.diff_dst_desc()};
  });
}

std::optional<ConvDescription> DescribeBackwardData(CpuContext* context, const ConvGeometry& g,
                                                    ConvMethod method, const memory::desc& source,
                                                    const memory::desc& output) {
  if (method.algorithm == ConvAlgorithm::kTiledWinograd) return DescribeTiledWinograd(g, false);
  if (method.algorithm == ConvAlgorithm::kFewChannels) return std::nullopt;
  return TryMake([&] {
    const convolution_backward_data::desc description(
        ToOneDnn(method.algorithm), Resolve(method.source, g.source, source), AnyLayout(g.weight),
        Resolve(method.output, g.output, output), g.stride, g.padding, g.padding);
    const convolution_backward_data::primitive_desc made(
        description, context->Attributes(), context->engine(), Hint(context, g, method.algorithm));
    return ConvDescription{method.algorithm,    made,           made.impl_info_str(), made.diff_src_desc(),
                           made.weights_desc(), memory::desc(), made.diff_dst_desc()};
  });
}

}  // namespace catchment
