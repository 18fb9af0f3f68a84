#include "common/job/layer_rules.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace catchment {
namespace {

// The formulas are job.proto's. A uniform distribution in +-a has variance a^2 / 3.
InitialValues WeightsBy(v1::Initializer initializer, double fan_in, double fan_out) {
  using Kind = InitialValues::Kind;
  switch (initializer) {
    case v1::KAIMING_NORMAL:
      return {Kind::kNormal, std::sqrt(2 / fan_in)};
    case v1::KAIMING_UNIFORM:
      return {Kind::kUniform, std::sqrt(3 * 2 / fan_in)};
    case v1::KAIMING_NORMAL_FAN_OUT:
      return {Kind::kNormal, std::sqrt(2 / fan_out)};
    case v1::XAVIER_NORMAL:
      return {Kind::kNormal, std::sqrt(2 / (fan_in + fan_out))};
    case v1::XAVIER_UNIFORM:
      return {Kind::kUniform, std::sqrt(3 * 2 / (fan_in + fan_out))};
    default:
      return {Kind::kUniform, 1 / std::sqrt(fan_in)};
  }
}

}  // namespace

int64_t CappedProduct(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (int64_t factor : factors) {
    product = std::min(kMaxTensorValues + 1, product * std::min(kMaxTensorValues + 1, factor));
  }
  return product;
}

InitialValues UniformBy(int64_t fan_in) {
  return {InitialValues::Kind::kUniform, 1 / std::sqrt(static_cast<double>(fan_in))};
}

void LayerInference::Problem(const std::string& field, const std::string& text) {
  problems.push_back(absl::StrCat(path, field, ": ", text));
}

void LayerInference::CheckInitializer(v1::Initializer initializer) {
  if (v1::Initializer_IsValid(initializer)) return;
  Problem(".initializer", absl::StrCat(static_cast<int>(initializer), " is not a known value"));
}

void LayerInference::AddWeight(std::vector<int64_t> weight, v1::Initializer initializer, LayerShape* out) {
  const int64_t units = weight[0];
  int64_t size = 1;
  for (int64_t dimension : weight) size = CappedProduct({size, dimension});
  if (size > kMaxTensorValues) {
    return Problem("", absl::StrCat("its weight, ", absl::StrJoin(weight, "x"), ", has more than ",
                                    kMaxTensorValues, " values"));
  }
  out->fan_in = units > 0 ? size / units : 0;
  const int64_t fan_out = weight[1] > 0 ? size / weight[1] : 0;
  out->tensors = {{absl::StrCat(out->name, ".weight"), std::move(weight)}};
  out->initial = {WeightsBy(initializer, static_cast<double>(out->fan_in), static_cast<double>(fan_out))};
  if (!out->bias) return;
  out->tensors.push_back({absl::StrCat(out->name, ".bias"), {units}});
  out->initial.push_back(initializer == v1::DEFAULT_UNIFORM
                             ? UniformBy(out->fan_in)
                             : InitialValues{InitialValues::Kind::kConstant, 0});
}

const LayerRule* FindLayerRule(LayerKind kind) {
  for (const auto rules : {ImageLayers(), NormalizationLayers(), VectorLayers()}) {
    for (const LayerRule& rule : rules) {
      if (rule.kind == kind) return &rule;
    }
  }
  return nullptr;
}

}  // namespace catchment
