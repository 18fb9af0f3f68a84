// The layers that normalize: batch_norm and layer_norm.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/job/layer_rules.h"

namespace catchment {
namespace {

constexpr float kEpsilon = 1e-5f;

void FillBatchNorm(v1::Layer* layer) {
  v1::BatchNorm& norm = *layer->mutable_batch_norm();
  if (!norm.has_epsilon()) norm.set_epsilon(kEpsilon);
  if (!norm.has_ghost_batch()) norm.set_ghost_batch(0);
  if (!norm.has_initial_weight()) norm.set_initial_weight(1);
}

void FillLayerNorm(v1::Layer* layer) {
  if (!layer->layer_norm().has_epsilon()) layer->mutable_layer_norm()->set_epsilon(kEpsilon);
}

void SetEpsilon(float epsilon, LayerShape* out, LayerInference* at) {
  out->epsilon = epsilon;
  if (!(out->epsilon > 0 && std::isfinite(out->epsilon))) {
    at->Problem(".epsilon", absl::StrCat(out->epsilon, " must be a number above 0"));
  }
}

void AddScaleAndShift(const std::vector<int64_t>& shape, float weight, LayerShape* out) {
  out->tensors = {{out->name + ".weight", shape}, {out->name + ".bias", shape}};
  out->initial = {{InitialValues::Kind::kConstant, weight}, {InitialValues::Kind::kConstant, 0}};
}

void InferBatchNorm(const v1::Layer& layer, LayerShape* out, LayerInference* at) {
  const v1::BatchNorm& norm = layer.batch_norm();
  out->ghost_batch = norm.ghost_batch();
  SetEpsilon(norm.epsilon(), out, at);
  if (at->shape && at->shape->is_sequence()) {
    at->Problem("", absl::StrCat("its input is a sequence, ", ToString(*at->shape),
                                 ", but it needs images or vectors; use layer_norm"));
    at->shape.reset();
  }
  const float weight = norm.initial_weight();
  if (!std::isfinite(weight)) at->Problem(".initial_weight", absl::StrCat(weight, " is not a number"));
  if (at->shape) AddScaleAndShift({at->shape->channels}, weight, out);
}

void InferLayerNorm(const v1::Layer& layer, LayerShape* out, LayerInference* at) {
  SetEpsilon(layer.layer_norm().epsilon(), out, at);
  if (!at->shape) return;
  switch (at->shape->kind) {
    case SampleKind::kImage:
      return AddScaleAndShift({at->shape->channels, at->shape->height, at->shape->width}, 1, out);
    case SampleKind::kVector:
      return AddScaleAndShift({at->shape->channels}, 1, out);
    case SampleKind::kSequence:
      return AddScaleAndShift({at->shape->width}, 1, out);
  }
}

}  // namespace

absl::Span<const LayerRule> NormalizationLayers() {
  static constexpr LayerRule kRules[] = {
      {LayerKind::kBatchNorm, FillBatchNorm, InferBatchNorm},
      {LayerKind::kLayerNorm, FillLayerNorm, InferLayerNorm},
  };
  return kRules;
}

}  // namespace catchment
