#include "common/job/model_shapes.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "google/protobuf/descriptor.h"

namespace catchment {
namespace {

// The largest number of values in a tensor, or in a sample between two layers. Kernels use 32-bit indices.
constexpr int64_t kLargest = (int64_t{1} << 31) - 1;

// Returns the product, or kLargest + 1 if it is larger than kLargest. No factor may be negative.
int64_t CappedProduct(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (int64_t factor : factors) {
    product = std::min(kLargest + 1, product * std::min(kLargest + 1, factor));
  }
  return product;
}

std::string DefaultName(LayerKind kind) {
  if (kind == LayerKind::kConv2D) return "conv";
  if (kind == LayerKind::kMaxPool) return "pool";
  return LayerKindName(kind);
}

// Sets field `name` of *message unless it is set.
#define CATCHMENT_DEFAULT(message, name, value)                 \
  do {                                                          \
    if (!(message)->has_##name()) (message)->set_##name(value); \
  } while (false)

template <typename Pool>
void FillPool(Pool* pool) {
  CATCHMENT_DEFAULT(pool, stride, pool->size());
  CATCHMENT_DEFAULT(pool, padding, 0);
}

void FillDefaults(v1::Layer* layer) {
  constexpr float kEpsilon = 1e-5f;
  if (layer->has_conv2d()) {
    CATCHMENT_DEFAULT(layer->mutable_conv2d(), stride, 1);
    CATCHMENT_DEFAULT(layer->mutable_conv2d(), padding, 0);
    CATCHMENT_DEFAULT(layer->mutable_conv2d(), groups, 1);
    CATCHMENT_DEFAULT(layer->mutable_conv2d(), bias, true);
  } else if (layer->has_dense()) {
    CATCHMENT_DEFAULT(layer->mutable_dense(), bias, true);
  } else if (layer->has_max_pool()) {
    FillPool(layer->mutable_max_pool());
  } else if (layer->has_average_pool()) {
    FillPool(layer->mutable_average_pool());
  } else if (layer->has_batch_norm()) {
    CATCHMENT_DEFAULT(layer->mutable_batch_norm(), epsilon, kEpsilon);
    CATCHMENT_DEFAULT(layer->mutable_batch_norm(), ghost_batch, 0);
    CATCHMENT_DEFAULT(layer->mutable_batch_norm(), initial_weight, 1);
  } else if (layer->has_layer_norm()) {
    CATCHMENT_DEFAULT(layer->mutable_layer_norm(), epsilon, kEpsilon);
  } else if (layer->has_lstm()) {
    CATCHMENT_DEFAULT(layer->mutable_lstm(), sequences, false);
  } else if (layer->has_residual()) {
    FillLayerDefaults(layer->mutable_residual()->mutable_layers());
    FillLayerDefaults(layer->mutable_residual()->mutable_shortcut());
  }
}

#undef CATCHMENT_DEFAULT

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
}

InitialValues UniformBy(int64_t fan_in) {
  return {InitialValues::Kind::kUniform, 1 / std::sqrt(static_cast<double>(fan_in))};
}

InitialValues All(double value) { return {InitialValues::Kind::kConstant, value}; }

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

// Infers the layers in order and collects all problems. After a layer whose output cannot be inferred, shape_
// is empty and checks that depend on it are skipped, so that one mistake is not reported several times.
class Inference {
 public:
  explicit Inference(const SampleShape& input) : shape_(input) {}

  // `path` is the path of the list, such as "model.layers".
  void AddAll(const google::protobuf::RepeatedPtrField<v1::Layer>& layers, const std::string& path) {
    for (int i = 0; i < layers.size(); ++i) Add(layers[i], absl::StrCat(path, "[", i, "]"));
  }

  void Finish(const v1::Loss& loss, const TargetShape& target) {
    path_ = "model.layers";
    if (layers_.empty()) return Problem("", "is empty; a model needs at least a dense layer");
    if (shape_) CheckOutputs(loss, target);
    CheckLoss(loss, target);
    path_ = "model.layers";
    if (problems_.empty() && ListTensors(layers_).empty()) {
      Problem("", "no layer has parameters; there is nothing to train");
    }
  }

  absl::StatusOr<std::vector<LayerShape>> Take() {
    if (!problems_.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems_, "\n"));
    return std::move(layers_);
  }

 private:
  // `field` is a field such as ".filters", or empty for the layer as a whole.
  void Problem(const std::string& field, const std::string& text) {
    problems_.push_back(absl::StrCat(path_, field, ": ", text));
  }

  void Add(const v1::Layer& layer, const std::string& path) {
    path_ = path;
    if (layer.kind_case() == v1::Layer::KIND_NOT_SET) {
      Problem("", absl::StrCat("has no kind; give one of ", ListKinds()));
      shape_.reset();
      return;
    }
    if (layer.has_residual()) return Residual(layer, path);
    LayerShape out;
    out.inputs = {last_};
    Append(layer, path, std::move(out), [&](LayerShape* out) { Dispatch(layer, out); });
  }

  // Adds a layer whose input is shape_. infer(out) fills the fields of its kind and sets shape_ to its
  // output.
  template <typename Infer>
  void Append(const v1::Layer& layer, const std::string& path, LayerShape out, Infer infer) {
    path_ = path;
    out.kind = layer.kind_case();
    Name(layer, &out);
    absl::StrAppend(&path_, ".", LayerKindName(out.kind));
    if (shape_) out.input = *shape_;
    infer(&out);
    if (shape_) CheckSize(*shape_);
    if (shape_) out.output = *shape_;
    last_ = static_cast<int>(layers_.size());
    layers_.push_back(std::move(out));
  }

  void Residual(const v1::Layer& layer, const std::string& path) {
    const v1::Residual& residual = layer.residual();
    const std::optional<SampleShape> input = shape_;
    const int from = last_;
    AddAll(residual.layers(), path + ".residual.layers");
    const std::optional<SampleShape> branch = shape_;
    LayerShape out;
    out.inputs = {last_};
    shape_ = input;
    last_ = from;
    AddAll(residual.shortcut(), path + ".residual.shortcut");
    out.inputs.push_back(last_);
    Append(layer, path, std::move(out), [&](LayerShape*) { CheckBranches(residual, branch); });
  }

  void CheckBranches(const v1::Residual& residual, const std::optional<SampleShape>& branch) {
    if (residual.layers().empty()) {
      Problem(".layers", "is empty; give the layers of the branch");
    } else if (branch && shape_ && *branch != *shape_) {
      Problem("",
              absl::StrCat("its layers produce ", ToString(*branch), " but its shortcut",
                           residual.shortcut().empty() ? ", the input itself, is " : " produces ",
                           ToString(*shape_), "; a sum needs equal shapes",
                           residual.shortcut().empty() ? ": give a shortcut that produces the same, such as "
                                                         "conv2d { kernel_size: 1 } with the branch's stride"
                                                       : ""));
    }
    if (!branch) shape_.reset();
  }

  void Name(const v1::Layer& layer, LayerShape* out) {
    const int ordinal = ++ordinals_[layer.kind_case()];
    out->name = layer.name().empty() ? absl::StrCat(DefaultName(layer.kind_case()), ordinal) : layer.name();
    if (!std::all_of(out->name.begin(), out->name.end(), IsNameCharacter)) {
      Problem(".name", absl::StrCat("\"", out->name, "\" may have letters, digits, '_', '-' and '.' only"));
    }
    const auto [first, is_new] = names_.try_emplace(out->name, path_);
    if (!is_new) {
      Problem(".name",
              absl::StrCat("\"", out->name, "\" is also the name of ", first->second, "; names are unique"));
    }
  }

  void Dispatch(const v1::Layer& layer, LayerShape* out) {
    switch (layer.kind_case()) {
      case v1::Layer::kConv2D:
        return Convolution(layer.conv2d(), out);
      case v1::Layer::kDense:
        return Dense(layer.dense(), out);
      case v1::Layer::kLstm:
        return Lstm(layer.lstm(), out);
      case v1::Layer::kMaxPool:
        return Pool(layer.max_pool(), out);
      case v1::Layer::kAveragePool:
        return Pool(layer.average_pool(), out);
      case v1::Layer::kGlobalAveragePool:
        return GlobalAveragePool();
      case v1::Layer::kBatchNorm:
        return BatchNorm(layer.batch_norm(), out);
      case v1::Layer::kLayerNorm:
        return LayerNorm(layer.layer_norm(), out);
      case v1::Layer::kFlatten:
        return Flatten();
      case v1::Layer::kDropout:
        return Dropout(layer.dropout(), out);
      case v1::Layer::kSoftmax:
        return Softmax();
      default:  // an activation function, which accepts any shape and does not change it
        return;
    }
  }

  void Convolution(const v1::Conv2d& conv, LayerShape* out) {
    out->kernel_size = conv.kernel_size();
    out->stride = conv.stride();
    out->padding = conv.padding();
    out->groups = conv.groups();
    out->bias = conv.bias();
    if (conv.filters() == 0) Problem(".filters", "is required, at least 1");
    CheckInitializer(conv.initializer());
    if (conv.kernel_size() > 0 && conv.padding() >= conv.kernel_size()) {
      Problem(".padding", absl::StrCat(conv.padding(), " is not below the kernel_size ", conv.kernel_size(),
                                       ": the outermost windows would contain only zeros"));
    }
    if (!Slide("kernel_size", out) || !GroupsDivide(conv.filters(), out)) return;
    AddWeight({conv.filters(), shape_->channels / out->groups, out->kernel_size, out->kernel_size},
              conv.initializer(), out);
    shape_->channels = conv.filters();
    if (conv.filters() == 0) shape_.reset();
    Narrow(*out);
  }

  bool GroupsDivide(int64_t filters, LayerShape* out) {
    if (out->groups == 0) {
      Problem(".groups", "is 0; it must be at least 1");
    } else if (filters % out->groups != 0 || shape_->channels % out->groups != 0) {
      Problem(".groups", absl::StrCat(out->groups, " does not divide both the ", shape_->channels,
                                      " channels of its input and its ", filters, " filters"));
    } else {
      return true;
    }
    shape_.reset();
    return false;
  }

  template <typename PoolMessage>
  void Pool(const PoolMessage& pool, LayerShape* out) {
    out->kernel_size = pool.size();
    out->stride = pool.stride();
    out->padding = pool.padding();
    if (pool.size() > 0 && pool.padding() > pool.size() / 2) {
      Problem(".padding", absl::StrCat(pool.padding(), " is above half of the size ", pool.size(),
                                       ": the outermost windows would contain little but padding"));
    }
    if (Slide("size", out)) Narrow(*out);
  }

  // Returns true if the window is valid and fits into a known input; otherwise empties shape_.
  bool Slide(const char* size_field, LayerShape* out) {
    bool sound = TakesImages();
    if (out->kernel_size == 0) {
      Problem(absl::StrCat(".", size_field), "is required, at least 1");
      sound = false;
    } else if (out->stride == 0) {
      Problem(".stride", "is 0; it must be at least 1");
      sound = false;
    } else if (sound && shape_ && out->kernel_size > SmallerSide(*shape_) + 2 * out->padding) {
      Problem(absl::StrCat(".", size_field),
              absl::StrCat(out->kernel_size, " is larger than its input, ", ToString(*shape_),
                           out->padding ? absl::StrCat(" with padding ", out->padding) : ""));
      sound = false;
    }
    if (!sound) shape_.reset();
    return shape_.has_value();
  }

  // Returns false, after reporting the problem, if the input is not an image; the caller must then empty
  // shape_.
  bool TakesImages() {
    if (!shape_ || shape_->kind == SampleKind::kImage) return true;
    Problem("",
            shape_->is_vector()
                ? absl::StrCat("its input is a vector of ", shape_->channels,
                               ", but it needs channels x height x width; put it before flatten and dense")
                : absl::StrCat("its input is a sequence, ", ToString(*shape_),
                               ", but it needs channels x height x width"));
    return false;
  }

  static int64_t SmallerSide(const SampleShape& shape) { return std::min(shape.height, shape.width); }

  void Narrow(const LayerShape& layer) {
    if (!shape_) return;
    const auto narrowed = [&](int64_t side) {
      return (side + 2 * layer.padding - layer.kernel_size) / layer.stride + 1;
    };
    shape_->height = narrowed(shape_->height);
    shape_->width = narrowed(shape_->width);
  }

  void GlobalAveragePool() {
    if (!TakesImages()) shape_.reset();
    if (shape_) shape_ = SampleShape::Vector(shape_->channels);
  }

  void Dense(const v1::Dense& dense, LayerShape* out) {
    out->bias = dense.bias();
    if (dense.units() == 0) Problem(".units", "is required, at least 1");
    CheckInitializer(dense.initializer());
    if (shape_ && !shape_->is_vector()) {
      Problem("", absl::StrCat("its input is ", ToString(*shape_),
                               ", but dense needs a vector; put flatten before it"));
    } else if (shape_) {
      AddWeight({dense.units(), shape_->channels}, dense.initializer(), out);
    }
    shape_ = SampleShape::Vector(dense.units());
    if (dense.units() == 0) shape_.reset();
  }

  void Lstm(const v1::Lstm& lstm, LayerShape* out) {
    const int64_t units = lstm.units();
    if (units == 0) Problem(".units", "is required, at least 1");
    if (shape_ && !shape_->is_sequence()) {
      Problem("", absl::StrCat("its input is ", ToString(*shape_),
                               ", but lstm needs a sequence, steps x values, such as data { generated_events "
                               "{} } or an lstm with sequences: true"));
      shape_.reset();
    }
    if (!shape_ || units == 0) return shape_.reset();
    if (CappedProduct({4, units, std::max(units, shape_->width)}) > kLargest) {
      Problem(".units", absl::StrCat(units, " makes a weight of more than ", kLargest, " values"));
      return shape_.reset();
    }
    out->tensors = {{out->name + ".weight_ih", {4 * units, shape_->width}},
                    {out->name + ".weight_hh", {4 * units, units}},
                    {out->name + ".bias_ih", {4 * units}},
                    {out->name + ".bias_hh", {4 * units}}};
    out->initial.assign(4, UniformBy(units));
    shape_ = lstm.sequences() ? SampleShape::Sequence(shape_->channels, units) : SampleShape::Vector(units);
  }

  void BatchNorm(const v1::BatchNorm& norm, LayerShape* out) {
    out->ghost_batch = norm.ghost_batch();
    SetEpsilon(norm.epsilon(), out);
    if (shape_ && shape_->is_sequence()) {
      Problem("", absl::StrCat("its input is a sequence, ", ToString(*shape_),
                               ", but it needs images or vectors; use layer_norm"));
      shape_.reset();
    }
    const float weight = norm.initial_weight();
    if (!std::isfinite(weight)) Problem(".initial_weight", absl::StrCat(weight, " is not a number"));
    if (shape_) AddScaleAndShift({shape_->channels}, weight, out);
  }

  void LayerNorm(const v1::LayerNorm& norm, LayerShape* out) {
    SetEpsilon(norm.epsilon(), out);
    if (!shape_) return;
    switch (shape_->kind) {
      case SampleKind::kImage:
        return AddScaleAndShift({shape_->channels, shape_->height, shape_->width}, 1, out);
      case SampleKind::kVector:
        return AddScaleAndShift({shape_->channels}, 1, out);
      case SampleKind::kSequence:
        return AddScaleAndShift({shape_->width}, 1, out);
    }
  }

  void SetEpsilon(float epsilon, LayerShape* out) {
    out->epsilon = epsilon;
    if (!(out->epsilon > 0 && std::isfinite(out->epsilon))) {
      Problem(".epsilon", absl::StrCat(out->epsilon, " must be a number above 0"));
    }
  }

  void AddScaleAndShift(const std::vector<int64_t>& shape, float weight, LayerShape* out) {
    out->tensors = {{out->name + ".weight", shape}, {out->name + ".bias", shape}};
    out->initial = {All(weight), All(0)};
  }

  void Flatten() {
    if (shape_) shape_ = SampleShape::Vector(shape_->size());
  }

  void Softmax() {
    if (!shape_ || shape_->kind != SampleKind::kImage) return;
    Problem("", absl::StrCat("its input is ", ToString(*shape_),
                             ", but softmax needs a vector or a sequence; put flatten before it"));
    shape_.reset();
  }

  void Dropout(const v1::Dropout& dropout, LayerShape* out) {
    out->rate = dropout.rate();
    if (!(out->rate >= 0 && out->rate < 1)) {
      Problem(".rate", absl::StrCat(out->rate, " is not in [0, 1)"));
    }
  }

  void CheckInitializer(v1::Initializer initializer) {
    if (v1::Initializer_IsValid(initializer)) return;
    Problem(".initializer", absl::StrCat(static_cast<int>(initializer), " is not a known value"));
  }

  // Adds a weight of outputs x inputs, or of filters x channels x k x k, and its bias.
  void AddWeight(std::vector<int64_t> weight, v1::Initializer initializer, LayerShape* out) {
    const int64_t units = weight[0];
    int64_t size = 1;
    for (int64_t dimension : weight) size = CappedProduct({size, dimension});
    if (size > kLargest) {
      return Problem("", absl::StrCat("its weight, ", absl::StrJoin(weight, "x"), ", has more than ",
                                      kLargest, " values"));
    }
    out->fan_in = units > 0 ? size / units : 0;
    const int64_t fan_out = weight[1] > 0 ? size / weight[1] : 0;
    out->tensors = {{absl::StrCat(out->name, ".weight"), std::move(weight)}};
    out->initial = {WeightsBy(initializer, static_cast<double>(out->fan_in), static_cast<double>(fan_out))};
    if (!out->bias) return;
    out->tensors.push_back({absl::StrCat(out->name, ".bias"), {units}});
    out->initial.push_back(initializer == v1::DEFAULT_UNIFORM ? UniformBy(out->fan_in) : All(0));
  }

  void CheckSize(const SampleShape& shape) {
    if (CappedProduct({shape.channels, shape.height, shape.width}) <= kLargest) return;
    Problem("", absl::StrCat("its output, ", ToString(shape), ", has more than ", kLargest, " values"));
    shape_.reset();
  }

  void CheckOutputs(const v1::Loss& loss, const TargetShape& target) {
    const bool one_for_two = loss.kind() == v1::Loss::SIGMOID_CROSS_ENTROPY && target.classes == 2;
    const int outputs = target.is_real() ? target.reals : target.classes;
    if (*shape_ == SampleShape::Vector(outputs)) return;
    if (one_for_two && *shape_ == SampleShape::Vector(1)) return;
    Problem("", absl::StrCat("the output of the last layer, ", layers_.back().name, ", is ",
                             ToString(*shape_), ", and the data has ", outputs,
                             target.is_real() ? " targets" : " classes", "; end with dense { units: ",
                             outputs, " }", one_for_two ? " or dense { units: 1 }" : ""));
  }

  void CheckLoss(const v1::Loss& loss, const TargetShape& target) {
    const bool is_softmax =
        loss.kind() == v1::Loss::LOSS_UNSET || loss.kind() == v1::Loss::SOFTMAX_CROSS_ENTROPY;
    if (is_softmax && layers_.back().kind == LayerKind::kSoftmax) {
      Problem("", absl::StrCat("the last layer, ", layers_.back().name,
                               ", is softmax, which softmax cross-entropy includes; leave it out"));
    }
    path_ = "model.loss";
    if (!v1::Loss::Kind_IsValid(loss.kind())) {
      Problem(".kind", absl::StrCat(static_cast<int>(loss.kind()), " is not a known value"));
    }
    if (target.is_real() && is_softmax) {
      Problem(
          ".kind",
          absl::StrCat(
              "is SOFTMAX_CROSS_ENTROPY, which needs one class per sample, but the data has ", target.reals,
              " real targets per sample; use MEAN_SQUARED_ERROR, or SIGMOID_CROSS_ENTROPY for targets "
              "in [0, 1]"));
    }
    const float smoothing = loss.label_smoothing();
    if (smoothing > 0 && target.is_real()) {
      Problem(".label_smoothing", "applies to classes, but the data has real targets; leave it out");
    } else if (!(smoothing >= 0 && smoothing < 1)) {
      Problem(".label_smoothing", absl::StrCat(smoothing, " is not in [0, 1)"));
    } else if (smoothing > 0 && loss.kind() == v1::Loss::MEAN_SQUARED_ERROR) {
      Problem(".label_smoothing",
              "is only for the cross-entropies; MEAN_SQUARED_ERROR compares values, not classes");
    }
  }

  std::optional<SampleShape> shape_;
  int last_ = LayerShape::kData;  // the layer that shape_ is the output of
  std::vector<LayerShape> layers_;
  std::vector<std::string> problems_;
  absl::flat_hash_map<std::string, std::string> names_;  // the path of the first layer of each name
  absl::flat_hash_map<int, int> ordinals_;
  std::string path_;
};

// The number of parts in which a synthetic model's weights and gradient are transferred, like the layers of a
// network. Each part costs a worker two context switches per step, so small models have few.
constexpr int64_t kMinSyntheticLayers = 2, kMaxSyntheticLayers = 8;
constexpr int64_t kSyntheticLayerParameters = 16384;

absl::StatusOr<std::vector<LayerShape>> SyntheticLayers(const v1::SyntheticModel& model) {
  const auto parameters = static_cast<int64_t>(std::min<uint64_t>(model.parameters(), kLargest + 1));
  if (parameters < 1 || parameters > kLargest) {
    return absl::InvalidArgumentError(absl::StrCat("model.synthetic.parameters: is ", model.parameters(),
                                                   "; it is required, from 1 to ", kLargest));
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
  for (v1::Layer& layer : *layers) FillDefaults(&layer);
}

std::string ToString(const SampleShape& shape) {
  if (shape.is_vector()) return absl::StrCat(shape.channels);
  if (shape.is_sequence()) return absl::StrCat(shape.channels, "x", shape.width);
  return absl::StrCat(shape.channels, "x", shape.height, "x", shape.width);
}

absl::StatusOr<std::vector<LayerShape>> InferShapes(const v1::Model& model, const SampleShape& input,
                                                    const TargetShape& target) {
  if (input.channels < 1 || input.height < 1 || input.width < 1 ||
      CappedProduct({input.channels, input.height, input.width}) > kLargest) {
    return absl::InvalidArgumentError(absl::StrCat("the data's samples are ", ToString(input),
                                                   "; every dimension must be at least 1, and a "
                                                   "sample at most ",
                                                   kLargest, " values"));
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
