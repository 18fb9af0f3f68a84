// The layers that write vectors and sequences: dense, lstm, flatten and softmax; also dropout, which accepts
// any shape.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/job/layer_rules.h"

namespace catchment {
namespace {

void FillDense(v1::Layer* layer) {
  if (!layer->dense().has_bias()) layer->mutable_dense()->set_bias(true);
}

void FillLstm(v1::Layer* layer) {
  if (!layer->lstm().has_sequences()) layer->mutable_lstm()->set_sequences(false);
}

void InferDense(const v1::Layer& layer, LayerShape* out, LayerInference* at) {
  const v1::Dense& dense = layer.dense();
  out->bias = dense.bias();
  if (dense.units() == 0) at->Problem(".units", "is required, at least 1");
  at->CheckInitializer(dense.initializer());
  if (at->shape && !at->shape->is_vector()) {
    at->Problem("", absl::StrCat("its input is ", ToString(*at->shape),
                                 ", but dense needs a vector; put flatten before it"));
  } else if (at->shape) {
    at->AddWeight({dense.units(), at->shape->channels}, dense.initializer(), out);
  }
  at->shape = SampleShape::Vector(dense.units());
  if (dense.units() == 0) at->shape.reset();
}

void InferLstm(const v1::Layer& layer, LayerShape* out, LayerInference* at) {
  const v1::Lstm& lstm = layer.lstm();
  const int64_t units = lstm.units();
  if (units == 0) at->Problem(".units", "is required, at least 1");
  if (at->shape && !at->shape->is_sequence()) {
    at->Problem("",
                absl::StrCat("its input is ", ToString(*at->shape),
                             ", but lstm needs a sequence, steps x values, such as data { generated_events "
                             "{} } or an lstm with sequences: true"));
    at->shape.reset();
  }
  if (!at->shape || units == 0) return at->shape.reset();
  if (CappedProduct({4, units, std::max(units, at->shape->width)}) > kMaxTensorValues) {
    at->Problem(".units", absl::StrCat(units, " makes a weight of more than ", kMaxTensorValues, " values"));
    return at->shape.reset();
  }
  out->tensors = {{out->name + ".weight_ih", {4 * units, at->shape->width}},
                  {out->name + ".weight_hh", {4 * units, units}},
                  {out->name + ".bias_ih", {4 * units}},
                  {out->name + ".bias_hh", {4 * units}}};
  out->initial.assign(4, UniformBy(units));
  at->shape =
      lstm.sequences() ? SampleShape::Sequence(at->shape->channels, units) : SampleShape::Vector(units);
}

void InferFlatten(const v1::Layer&, LayerShape*, LayerInference* at) {
  if (at->shape) at->shape = SampleShape::Vector(at->shape->size());
}

void InferSoftmax(const v1::Layer&, LayerShape*, LayerInference* at) {
  if (!at->shape || at->shape->kind != SampleKind::kImage) return;
  at->Problem("", absl::StrCat("its input is ", ToString(*at->shape),
                               ", but softmax needs a vector or a sequence; put flatten before it"));
  at->shape.reset();
}

void InferDropout(const v1::Layer& layer, LayerShape* out, LayerInference* at) {
  out->rate = layer.dropout().rate();
  if (!(out->rate >= 0 && out->rate < 1)) {
    at->Problem(".rate", absl::StrCat(out->rate, " is not in [0, 1)"));
  }
}

}  // namespace

absl::Span<const LayerRule> VectorLayers() {
  static constexpr LayerRule kRules[] = {
      {LayerKind::kDense, FillDense, InferDense},   {LayerKind::kLstm, FillLstm, InferLstm},
      {LayerKind::kFlatten, nullptr, InferFlatten}, {LayerKind::kSoftmax, nullptr, InferSoftmax},
      {LayerKind::kDropout, nullptr, InferDropout},
  };
  return kRules;
}

}  // namespace catchment
