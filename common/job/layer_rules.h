// The rules by which the layers of a model are inferred (model_shapes.h): the defaults of each kind, and its
// output and tensors.
//
// Shapes: those of one sample, as in model_shapes.h.
// Threads: the rules are constant; each inference has its own LayerInference.
// Errors: an inference collects them, one line for each problem.
#ifndef CATCHMENT_COMMON_JOB_LAYER_RULES_H_
#define CATCHMENT_COMMON_JOB_LAYER_RULES_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/job/model_shapes.h"
#include "proto/job.pb.h"

namespace catchment {

// The largest number of values in a tensor, or in a sample between two layers. Kernels use 32-bit indices.
inline constexpr int64_t kMaxTensorValues = (int64_t{1} << 31) - 1;

// Returns the product, or kMaxTensorValues + 1 if it is larger than kMaxTensorValues. No factor may be
// negative.
int64_t CappedProduct(std::initializer_list<int64_t> factors);

// Returns a uniform distribution in +-1 / sqrt(fan_in).
InitialValues UniformBy(int64_t fan_in);

// An inference of layers, at one of them. After a layer whose output cannot be inferred, the shape is empty
// and checks that depend on it are skipped, so that one mistake is not reported several times.
struct LayerInference {
  std::optional<SampleShape> shape;  // of the layer's input; a rule changes it to that of the output
  std::string path;                  // of the layer, such as "model.layers[3].dense"
  std::vector<std::string> problems;

  // Reports a problem of a field such as ".filters", or, if it is empty, of the layer as a whole.
  void Problem(const std::string& field, const std::string& text);
  void CheckInitializer(v1::Initializer initializer);
  // Adds a weight of outputs x inputs, or of filters x channels x k x k, and its bias.
  void AddWeight(std::vector<int64_t> weight, v1::Initializer initializer, LayerShape* out);
};

struct LayerRule {
  LayerKind kind;
  // Sets the optional fields that are not set. Null: the kind has none.
  void (*fill_defaults)(v1::Layer* layer);
  // Fills the fields of `out` that the kind has, and sets at->shape to the output. If there is none, reports
  // why, and empties at->shape.
  void (*infer)(const v1::Layer& layer, LayerShape* out, LayerInference* at);
};

// Return the rules of the kinds that each file has.
absl::Span<const LayerRule> ImageLayers();
absl::Span<const LayerRule> NormalizationLayers();
absl::Span<const LayerRule> VectorLayers();

// Returns the rule of a kind; null for kinds that accept any shape, do not change it and have no fields, such
// as activation functions, and for residual.
const LayerRule* FindLayerRule(LayerKind kind);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_LAYER_RULES_H_
