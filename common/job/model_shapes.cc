#include "common/job/model_shapes.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/job/layer_rules.h"
#include "google/protobuf/descriptor.h"

namespace catchment {
namespace {

std::string DefaultName(LayerKind kind) {
  if (kind == LayerKind::kConv2D) return "conv";
  if (kind == LayerKind::kMaxPool) return "pool";
  return LayerKindName(kind);
}

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
}

// Returns how many values lstm's buffers have for one sample: the gates, cells and states of each step, and
// the steps in the order of time, with their gradients.
int64_t LstmBufferValues(const LayerShape& layer) {
  const int64_t units = layer.tensors[1].shape[1];
  return layer.input.channels * (6 * units + 2 * layer.input.width);
}

// Returns the names of all kinds: "conv2d, dense, max_pool, ...".
std::string ListKinds() {
  std::vector<std::string> names;
  const google::protobuf::OneofDescriptor& kinds = *v1::Layer::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < kinds.field_count(); ++i) names.push_back(kinds.field(i)->name());
  return absl::StrJoin(names, ", ");
}

// Infers the layers in order and collects all problems.
class Inference {
 public:
  explicit Inference(const SampleShape& input) : at_{.shape = input} {}

  // `path` is the path of the list, such as "model.layers".
  void AddAll(const google::protobuf::RepeatedPtrField<v1::Layer>& layers, const std::string& path) {
    for (int i = 0; i < layers.size(); ++i) Add(layers[i], absl::StrCat(path, "[", i, "]"));
  }

  void Finish(const v1::Loss& loss, const TargetShape& target) {
    at_.path = "model.layers";
    if (layers_.empty()) return at_.Problem("", "is empty; a model needs at least a dense layer");
    if (at_.shape) CheckOutputs(loss, target);
    CheckLoss(loss, target);
    at_.path = "model.layers";
    if (at_.problems.empty() && ListTensors(layers_).empty()) {
      at_.Problem("", "no layer has parameters; there is nothing to train");
    }
  }

  absl::StatusOr<std::vector<LayerShape>> Take() {
    if (!at_.problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(at_.problems, "\n"));
    return std::move(layers_);
  }

 private:
  void Add(const v1::Layer& layer, const std::string& path) {
    at_.path = path;
    if (layer.kind_case() == v1::Layer::KIND_NOT_SET) {
      at_.Problem("", absl::StrCat("has no kind; give one of ", ListKinds()));
      at_.shape.reset();
      return;
    }
    if (layer.has_residual()) return Residual(layer, path);
    LayerShape out;
    out.inputs = {last_};
    Append(layer, path, std::move(out), [&](LayerShape* out) {
      const LayerRule* const rule = FindLayerRule(layer.kind_case());
      if (rule != nullptr) rule->infer(layer, out, &at_);
    });
  }

  // Adds a layer whose input is at_.shape. infer(out) fills the fields of its kind and sets at_.shape to its
  // output.
  template <typename Infer>
  void Append(const v1::Layer& layer, const std::string& path, LayerShape out, Infer infer) {
    at_.path = path;
    out.kind = layer.kind_case();
    Name(layer, &out);
    absl::StrAppend(&at_.path, ".", LayerKindName(out.kind));
    if (at_.shape) out.input = *at_.shape;
    infer(&out);
    if (at_.shape) CheckSize(*at_.shape);
    if (at_.shape) out.output = *at_.shape;
    last_ = static_cast<int>(layers_.size());
    layers_.push_back(std::move(out));
  }

  void Residual(const v1::Layer& layer, const std::string& path) {
    const v1::Residual& residual = layer.residual();
    const std::optional<SampleShape> input = at_.shape;
    const int from = last_;
    AddAll(residual.layers(), path + ".residual.layers");
    const std::optional<SampleShape> branch = at_.shape;
    LayerShape out;
    out.inputs = {last_};
    at_.shape = input;
    last_ = from;
    AddAll(residual.shortcut(), path + ".residual.shortcut");
    out.inputs.push_back(last_);
    Append(layer, path, std::move(out), [&](LayerShape*) { CheckBranches(residual, branch); });
  }

  void CheckBranches(const v1::Residual& residual, const std::optional<SampleShape>& branch) {
    if (residual.layers().empty()) {
      at_.Problem(".layers", "is empty; give the layers of the branch");
    } else if (branch && at_.shape && *branch != *at_.shape) {
      at_.Problem(
          "", absl::StrCat("its layers produce ", ToString(*branch), " but its shortcut",
                           residual.shortcut().empty() ? ", the input itself, is " : " produces ",
                           ToString(*at_.shape), "; a sum needs equal shapes",
                           residual.shortcut().empty() ? ": give a shortcut that produces the same, such as "
                                                         "conv2d { kernel_size: 1 } with the branch's stride"
                                                       : ""));
    }
    if (!branch) at_.shape.reset();
  }

  void Name(const v1::Layer& layer, LayerShape* out) {
    const int ordinal = ++ordinals_[layer.kind_case()];
    out->name = layer.name().empty() ? absl::StrCat(DefaultName(layer.kind_case()), ordinal) : layer.name();
    if (!std::all_of(out->name.begin(), out->name.end(), IsNameCharacter)) {
      at_.Problem(".name",
                  absl::StrCat("\"", out->name, "\" may have letters, digits, '_', '-' and '.' only"));
    }
    const auto [first, is_new] = names_.try_emplace(out->name, at_.path);
    if (!is_new) {
      at_.Problem(".name", absl::StrCat("\"", out->name, "\" is also the name of ", first->second,
                                        "; names are unique"));
    }
  }

  void CheckSize(const SampleShape& shape) {
    if (CappedProduct({shape.channels, shape.height, shape.width}) <= kMaxTensorValues) return;
    at_.Problem(
        "", absl::StrCat("its output, ", ToString(shape), ", has more than ", kMaxTensorValues, " values"));
    at_.shape.reset();
  }

  void CheckOutputs(const v1::Loss& loss, const TargetShape& target) {
    const bool one_for_two = loss.kind() == v1::Loss::SIGMOID_CROSS_ENTROPY && target.classes == 2;
    const int outputs = target.is_real() ? target.reals : target.classes;
    if (*at_.shape == SampleShape::Vector(outputs)) return;
    if (one_for_two && *at_.shape == SampleShape::Vector(1)) return;
    at_.Problem("", absl::StrCat("the output of the last layer, ", layers_.back().name, ", is ",
                                 ToString(*at_.shape), ", and the data has ", outputs,
                                 target.is_real() ? " targets" : " classes", "; end with dense { units: ",
                                 outputs, " }", one_for_two ? " or dense { units: 1 }" : ""));
  }

  void CheckLoss(const v1::Loss& loss, const TargetShape& target) {
    const bool is_softmax =
        loss.kind() == v1::Loss::LOSS_UNSET || loss.kind() == v1::Loss::SOFTMAX_CROSS_ENTROPY;
    if (is_softmax && layers_.back().kind == LayerKind::kSoftmax) {
      at_.Problem("", absl::StrCat("the last layer, ", layers_.back().name,
                                   ", is softmax, which softmax cross-entropy includes; leave it out"));
    }
    at_.path = "model.loss";
    if (!v1::Loss::Kind_IsValid(loss.kind())) {
      at_.Problem(".kind", absl::StrCat(static_cast<int>(loss.kind()), " is not a known value"));
    }
    if (target.is_real() && is_softmax) {
      at_.Problem(
          ".kind",
          absl::StrCat("is SOFTMAX_CROSS_ENTROPY, which needs one class per sample, but the data has ",
                       target.reals,
                       " real targets per sample; use MEAN_SQUARED_ERROR, "
                       "or SIGMOID_CROSS_ENTROPY for targets in [0, 1]"));
    }
    const float smoothing = loss.label_smoothing();
    if (smoothing > 0 && target.is_real()) {
      at_.Problem(".label_smoothing", "applies to classes, but the data has real targets; leave it out");
    } else if (!(smoothing >= 0 && smoothing < 1)) {
      at_.Problem(".label_smoothing", absl::StrCat(smoothing, " is not in [0, 1)"));
    } else if (smoothing > 0 && loss.kind() == v1::Loss::MEAN_SQUARED_ERROR) {
      at_.Problem(".label_smoothing",
                  "is only for the cross-entropies; MEAN_SQUARED_ERROR compares values, not classes");
    }
  }

  LayerInference at_;             // the last layer that was added
  int last_ = LayerShape::kData;  // the layer that at_.shape is the output of
  std::vector<LayerShape> layers_;
  absl::flat_hash_map<std::string, std::string> names_;  // the path of the first layer of each name
  absl::flat_hash_map<int, int> ordinals_;
};

// The number of parts in which a synthetic model's weights and gradient are transferred, like the layers of a
// network. Each part costs a worker two context switches per step, so small models have few.
constexpr int64_t kMinSyntheticLayers = 2, kMaxSyntheticLayers = 8;
constexpr int64_t kSyntheticLayerParameters = 16384;

absl::StatusOr<std::vector<LayerShape>> SyntheticLayers(const v1::SyntheticModel& model) {
  const auto parameters = static_cast<int64_t>(std::min<uint64_t>(model.parameters(), kMaxParameters + 1));
  if (parameters < 1 || parameters > kMaxParameters) {
    return absl::InvalidArgumentError(absl::StrCat("model.synthetic.parameters: is ", model.parameters(),
                                                   "; it is required, from 1 to ", kMaxParameters));
  }
  const int64_t count = std::min(parameters, std::clamp(parameters / kSyntheticLayerParameters,
                                                        kMinSyntheticLayers, kMaxSyntheticLayers));
  std::vector<LayerShape> layers;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = parameters * (i + 1) / count - parameters * i / count;
    LayerShape& layer = layers.emplace_back();
    layer.name = absl::StrCat("layer", i + 1);
    layer.kind = LayerKind::KIND_NOT_SET;
    layer.input = layer.output = SampleShape::Vector(1);
    layer.tensors = {{absl::StrCat(layer.name, ".weight"), {size}}};
    layer.initial = {UniformBy(size)};
  }
  return layers;
}

absl::Status CheckOneKind(const v1::Model& model) {
  std::vector<std::string> kinds;
  if (model.layers_size() > 0) kinds.push_back("layers");
  if (model.has_synthetic()) kinds.push_back("synthetic");
  if (model.has_external()) kinds.push_back("external");
  if (kinds.size() <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("model.", kinds.back(), ": is given together with ", kinds.front(),
                   "; a model has layers, or is synthetic or external: keep only one of them"));
}

// Returns the part of a tensor's name before its last dot, which is its module in PyTorch.
std::string ModuleOf(const std::string& tensor) {
  const size_t dot = tensor.rfind('.');
  return dot == std::string::npos || dot == 0 ? tensor : tensor.substr(0, dot);
}

// Makes a layer of consecutive tensors of one module. Their initial values come from a file.
absl::StatusOr<std::vector<LayerShape>> ExternalLayers(const v1::ExternalModel& model) {
  if (model.tensors().empty()) {
    return absl::InvalidArgumentError(
        "model.external.tensors: has none; name the model's parameters with their shapes, or let `catchment "
        "train --program=COMMAND` ask the program for them");
  }
  std::vector<LayerShape> layers;
  for (const v1::ExternalTensor& tensor : model.tensors()) {
    const std::string module = ModuleOf(tensor.name());
    if (layers.empty() || layers.back().name != module) {
      LayerShape& layer = layers.emplace_back();
      layer.name = module;
      layer.kind = LayerKind::KIND_NOT_SET;
      layer.external = true;
      layer.input = layer.output = SampleShape::Vector(1);
    }
    layers.back().tensors.push_back({tensor.name(), {tensor.shape().begin(), tensor.shape().end()}});
    layers.back().initial.push_back({InitialValues::Kind::kConstant, 0});
  }
  return layers;
}

}  // namespace

std::string LayerKindName(LayerKind kind) {
  const auto* const field = v1::Layer::descriptor()->FindFieldByNumber(kind);
  return field == nullptr ? "synthetic" : field->name();
}

void FillLayerDefaults(google::protobuf::RepeatedPtrField<v1::Layer>* layers) {
  for (v1::Layer& layer : *layers) {
    const LayerRule* const rule = FindLayerRule(layer.kind_case());
    if (rule != nullptr && rule->fill_defaults != nullptr) rule->fill_defaults(&layer);
    if (!layer.has_residual()) continue;
    FillLayerDefaults(layer.mutable_residual()->mutable_layers());
    FillLayerDefaults(layer.mutable_residual()->mutable_shortcut());
  }
}

std::string ToString(const SampleShape& shape) {
  if (shape.is_vector()) return absl::StrCat(shape.channels);
  if (shape.is_sequence()) return absl::StrCat(shape.channels, "x", shape.width);
  return absl::StrCat(shape.channels, "x", shape.height, "x", shape.width);
}

absl::StatusOr<std::vector<LayerShape>> InferShapes(const v1::Model& model, const SampleShape& input,
                                                    const TargetShape& target) {
  if (input.channels < 1 || input.height < 1 || input.width < 1 ||
      CappedProduct({input.channels, input.height, input.width}) > kMaxTensorValues) {
    return absl::InvalidArgumentError(absl::StrCat("the data's samples are ", ToString(input),
                                                   "; every dimension must be at "
                                                   "least 1, and a sample at most ",
                                                   kMaxTensorValues, " values"));
  }
  RETURN_IF_ERROR(CheckOneKind(model));
  if (model.has_synthetic()) return SyntheticLayers(model.synthetic());
  if (model.has_external()) return ExternalLayers(model.external());
  auto model_layers = model.layers();
  FillLayerDefaults(&model_layers);
  Inference inference(input);
  inference.AddAll(model_layers, "model.layers");
  inference.Finish(model.loss(), target);
  return inference.Take();
}

std::vector<TensorSpec> ListTensors(const std::vector<LayerShape>& layers) {
  std::vector<TensorSpec> tensors;
  for (const LayerShape& layer : layers) {
    tensors.insert(tensors.end(), layer.tensors.begin(), layer.tensors.end());
  }
  return tensors;
}

std::vector<Range> LayerRanges(const std::vector<LayerShape>& layers) {
  std::vector<Range> ranges;
  int64_t end = 0;
  for (const LayerShape& layer : layers) {
    const int64_t begin = end;
    for (const TensorSpec& tensor : layer.tensors) end += tensor.size();
    if (end > begin) ranges.push_back({begin, end});
  }
  return ranges;
}

int64_t CountParameters(const std::vector<LayerShape>& layers) {
  int64_t count = 0;
  for (const LayerShape& layer : layers) {
    for (const TensorSpec& tensor : layer.tensors) count += tensor.size();
  }
  return count;
}

int64_t CountStatistics(const LayerShape& layer) {
  return layer.kind == LayerKind::kBatchNorm ? 2 * layer.input.channels : 0;
}

int64_t EstimateMemoryBytes(const std::vector<LayerShape>& layers, int64_t batch_size) {
  int64_t values = layers.empty() ? 0 : layers.front().input.size();
  const bool computes =
      layers.empty() || layers.front().kind != LayerKind::KIND_NOT_SET || layers.front().external;
  std::vector<int> readers(layers.size());
  for (const LayerShape& layer : layers) {
    values += 2 * layer.output.size();
    if (layer.kind == LayerKind::kDropout || layer.kind == LayerKind::kMaxPool) values += layer.output.size();
    if (layer.kind == LayerKind::kLstm) values += LstmBufferValues(layer);
    for (int input : layer.inputs) {
      if (input != LayerShape::kData && ++readers[input] > 1) values += layer.input.size();
    }
  }
  constexpr int64_t kBytes = sizeof(float);
  return kBytes * (batch_size * values + (computes ? 4 : 2) * CountParameters(layers));
}

}  // namespace catchment
