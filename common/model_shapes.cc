#include "common/model_shapes.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace catchment {
namespace {

// Values in one tensor, or in one sample between two layers. Kernels count in 32 bits.
constexpr int64_t kLargest = (int64_t{1} << 31) - 1;

// The product, or kLargest + 1 when it is larger than kLargest. No factor is negative.
int64_t CappedProduct(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (int64_t factor : factors) {
    product = std::min(kLargest + 1, product * std::min(kLargest + 1, factor));
  }
  return product;
}

const char* KindField(const v1::Layer& layer) {
  switch (layer.kind_case()) {
    case v1::Layer::kConv2D:
      return "conv2d";
    case v1::Layer::kDense:
      return "dense";
    case v1::Layer::kMaxPool:
      return "max_pool";
    case v1::Layer::kFlatten:
      return "flatten";
    case v1::Layer::kRelu:
      return "relu";
    case v1::Layer::kDropout:
      return "dropout";
    case v1::Layer::KIND_NOT_SET:
      break;
  }
  return "";
}

const char* DefaultName(const v1::Layer& layer) {
  switch (layer.kind_case()) {
    case v1::Layer::kConv2D:
      return "conv";
    case v1::Layer::kMaxPool:
      return "pool";
    default:
      return KindField(layer);
  }
}

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
}

// Walks the layers and gathers every problem. After a layer whose output cannot be known, shape_ is empty and
// what depends on it goes unchecked, so one mistake is not reported as several.
class Inference {
 public:
  explicit Inference(const SampleShape& input) : shape_(input) {}

  void Add(const v1::Layer& layer) {
    index_ = static_cast<int>(layers_.size());
    LayerShape& out = layers_.emplace_back();
    path_ = absl::StrCat("model.layers[", index_, "]");
    if (layer.kind_case() == v1::Layer::KIND_NOT_SET) {
      Problem("", "has no kind; give one of conv2d, dense, max_pool, flatten, relu, dropout");
      shape_.reset();
      return;
    }
    Name(layer, &out);
    absl::StrAppend(&path_, ".", KindField(layer));
    if (shape_) out.input = *shape_;
    Dispatch(layer, &out);
    if (shape_) CheckSize(*shape_);
    if (shape_) out.output = *shape_;
  }

  void Finish(int num_classes) {
    path_ = "model.layers";
    if (layers_.empty()) return Problem("", "is empty; a model needs at least a dense layer");
    if (shape_ && *shape_ != SampleShape::Vector(num_classes)) {
      Problem("", absl::StrCat("the output of the last layer, ", layers_.back().name, ", is ",
                               ToString(*shape_), ", and the data has ", num_classes,
                               " classes; end with dense { units: ", num_classes, " }"));
    }
    if (problems_.empty() && ListTensors(layers_).empty()) {
      Problem("", "no layer has parameters; there is nothing to train");
    }
  }

  absl::StatusOr<std::vector<LayerShape>> Take() {
    if (!problems_.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems_, "\n"));
    return std::move(layers_);
  }

 private:
  // `field` is empty for the layer as a whole, or ".filters".
  void Problem(const std::string& field, const std::string& text) {
    problems_.push_back(absl::StrCat(path_, field, ": ", text));
  }

  void Name(const v1::Layer& layer, LayerShape* out) {
    const int ordinal = ++ordinals_[layer.kind_case()];
    out->name = layer.name().empty() ? absl::StrCat(DefaultName(layer), ordinal) : layer.name();
    if (!std::all_of(out->name.begin(), out->name.end(), IsNameCharacter)) {
      Problem(".name", absl::StrCat("\"", out->name, "\" may have letters, digits, '_', '-' and '.' only"));
    }
    const auto [first, is_new] = names_.try_emplace(out->name, index_);
    if (!is_new) {
      Problem(".name", absl::StrCat("\"", out->name, "\" is also the name of model.layers[", first->second,
                                    "]; names are unique"));
    }
  }

  void Dispatch(const v1::Layer& layer, LayerShape* out) {
    switch (layer.kind_case()) {
      case v1::Layer::kConv2D:
        return Convolution(layer.conv2d(), out);
      case v1::Layer::kDense:
        return Dense(layer.dense(), out);
      case v1::Layer::kMaxPool:
        return MaxPool(layer.max_pool(), out);
      case v1::Layer::kFlatten:
        return Flatten(out);
      case v1::Layer::kRelu:
        out->kind = LayerKind::kRelu;
        return;
      case v1::Layer::kDropout:
        return Dropout(layer.dropout(), out);
      case v1::Layer::KIND_NOT_SET:
        return;
    }
  }

  void Convolution(const v1::Conv2d& conv, LayerShape* out) {
    out->kind = LayerKind::kConv2d;
    out->kernel_size = conv.kernel_size();
    out->stride = conv.has_stride() ? conv.stride() : 1;
    out->padding = conv.padding();
    if (conv.filters() == 0) Problem(".filters", "is required, at least 1");
    if (conv.kernel_size() > 0 && conv.padding() >= conv.kernel_size()) {
      Problem(".padding", absl::StrCat(conv.padding(), " is not below the kernel_size ", conv.kernel_size(),
                                       ": the outermost windows would see only zeros"));
    }
    if (!Slide("kernel_size", out)) return;
    AddTensors({conv.filters(), shape_->channels, out->kernel_size, out->kernel_size}, out);
    shape_->channels = conv.filters();
    if (conv.filters() == 0) shape_.reset();
    Narrow(*out);
  }

  void MaxPool(const v1::MaxPool2d& pool, LayerShape* out) {
    out->kind = LayerKind::kMaxPool2d;
    out->kernel_size = pool.size();
    out->stride = pool.has_stride() ? pool.stride() : pool.size();
    if (Slide("size", out)) Narrow(*out);
  }

  // True when the window is sound and fits into a known input; otherwise shape_ is empty.
  bool Slide(const char* size_field, LayerShape* out) {
    bool sound = true;
    if (out->kernel_size == 0) {
      Problem(absl::StrCat(".", size_field), "is required, at least 1");
      sound = false;
    } else if (out->stride == 0) {
      Problem(".stride", "is 0; it must be at least 1");
      sound = false;
    }
    if (shape_ && shape_->is_vector) {
      Problem("", absl::StrCat("its input is a vector of ", shape_->channels,
                               ", and it takes channels x height x width; put it before flatten and dense"));
      sound = false;
    } else if (shape_ && sound && out->kernel_size > SmallerSide(*shape_) + 2 * out->padding) {
      Problem(absl::StrCat(".", size_field),
              absl::StrCat(out->kernel_size, " is larger than its input, ", ToString(*shape_),
                           out->padding ? absl::StrCat(" with padding ", out->padding) : ""));
      sound = false;
    }
    if (!sound) shape_.reset();
    return shape_.has_value();
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

  void Dense(const v1::Dense& dense, LayerShape* out) {
    out->kind = LayerKind::kDense;
    if (dense.units() == 0) Problem(".units", "is required, at least 1");
    if (shape_ && !shape_->is_vector) {
      Problem("", absl::StrCat("its input is ", ToString(*shape_),
                               ", and dense takes a vector; put flatten before it"));
    } else if (shape_) {
      AddTensors({dense.units(), shape_->channels}, out);
    }
    shape_ = SampleShape::Vector(dense.units());
    if (dense.units() == 0) shape_.reset();
  }

  void Flatten(LayerShape* out) {
    out->kind = LayerKind::kFlatten;
    if (shape_) shape_ = SampleShape::Vector(shape_->size());
  }

  void Dropout(const v1::Dropout& dropout, LayerShape* out) {
    out->kind = LayerKind::kDropout;
    out->rate = dropout.rate();
    if (!(out->rate >= 0 && out->rate < 1)) {
      Problem(".rate", absl::StrCat(out->rate, " is not in [0, 1)"));
    }
  }

  void AddTensors(std::vector<int64_t> weight, LayerShape* out) {
    const int64_t units = weight[0];
    int64_t size = 1;
    for (int64_t dimension : weight) size = CappedProduct({size, dimension});
    if (size > kLargest) {
      return Problem("", absl::StrCat("its weight, ", absl::StrJoin(weight, "x"), ", has more than ",
                                      kLargest, " values"));
    }
    out->fan_in = units > 0 ? size / units : 0;
    out->tensors = {{absl::StrCat(out->name, ".weight"), std::move(weight)},
                    {absl::StrCat(out->name, ".bias"), {units}}};
  }

  void CheckSize(const SampleShape& shape) {
    if (CappedProduct({shape.channels, shape.height, shape.width}) <= kLargest) return;
    Problem("", absl::StrCat("its output, ", ToString(shape), ", has more than ", kLargest, " values"));
    shape_.reset();
  }

  std::optional<SampleShape> shape_;
  std::vector<LayerShape> layers_;
  std::vector<std::string> problems_;
  absl::flat_hash_map<std::string, int> names_;
  absl::flat_hash_map<int, int> ordinals_;
  std::string path_;
  int index_ = 0;
};

// Parts in which a synthetic model's weights come and its gradient goes, like a network's layers. Every part
// costs a worker two awakenings in each step, so small models have few.
constexpr int64_t kFewestSyntheticLayers = 2, kMostSyntheticLayers = 8;
constexpr int64_t kSyntheticLayerParameters = 16384;

absl::StatusOr<std::vector<LayerShape>> SyntheticLayers(const v1::SyntheticModel& model) {
  const auto parameters = static_cast<int64_t>(std::min<uint64_t>(model.parameters(), kLargest + 1));
  if (parameters < 1 || parameters > kLargest) {
    return absl::InvalidArgumentError(absl::StrCat("model.synthetic.parameters: is ", model.parameters(),
                                                   "; it is required, from 1 to ", kLargest));
  }
  const int64_t count = std::min(parameters, std::clamp(parameters / kSyntheticLayerParameters,
                                                        kFewestSyntheticLayers, kMostSyntheticLayers));
  std::vector<LayerShape> layers;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = parameters * (i + 1) / count - parameters * i / count;
    LayerShape& layer = layers.emplace_back();
    layer.name = absl::StrCat("layer", i + 1);
    layer.kind = LayerKind::kSynthetic;
    layer.input = layer.output = SampleShape::Vector(1);
    layer.tensors = {{absl::StrCat(layer.name, ".weight"), {size}}};
    layer.fan_in = size;
  }
  return layers;
}

}  // namespace

std::string ToString(const SampleShape& shape) {
  if (shape.is_vector) return absl::StrCat(shape.channels);
  return absl::StrCat(shape.channels, "x", shape.height, "x", shape.width);
}

absl::StatusOr<std::vector<LayerShape>> InferShapes(const v1::Model& model, const SampleShape& input,
                                                    int num_classes) {
  if (input.channels < 1 || input.height < 1 || input.width < 1 ||
      CappedProduct({input.channels, input.height, input.width}) > kLargest) {
    return absl::InvalidArgumentError(absl::StrCat("the data's samples are ", ToString(input),
                                                   "; every dimension must be at least 1, and a "
                                                   "sample at most ",
                                                   kLargest, " values"));
  }
  if (model.has_synthetic() && model.layers_size() > 0) {
    return absl::InvalidArgumentError(
        "model.synthetic: stands beside layers; a model is made of layers or synthetic, leave one of them "
        "out");
  }
  if (model.has_synthetic()) return SyntheticLayers(model.synthetic());
  Inference inference(input);
  for (const v1::Layer& layer : model.layers()) inference.Add(layer);
  inference.Finish(num_classes);
  return inference.Take();
}

std::vector<TensorSpec> ListTensors(const std::vector<LayerShape>& layers) {
  std::vector<TensorSpec> tensors;
  for (const LayerShape& layer : layers) {
    tensors.insert(tensors.end(), layer.tensors.begin(), layer.tensors.end());
  }
  return tensors;
}

int64_t CountParameters(const std::vector<LayerShape>& layers) {
  int64_t count = 0;
  for (const LayerShape& layer : layers) {
    for (const TensorSpec& tensor : layer.tensors) count += tensor.size();
  }
  return count;
}

int64_t EstimateMemoryBytes(const std::vector<LayerShape>& layers, int64_t batch_size) {
  int64_t values = layers.empty() ? 0 : layers.front().input.size();
  const bool has_kernels = layers.empty() || layers.front().kind != LayerKind::kSynthetic;
  for (const LayerShape& layer : layers) {
    const bool has_mask = layer.kind == LayerKind::kDropout || layer.kind == LayerKind::kMaxPool2d;
    values += (has_mask ? 3 : 2) * layer.output.size();
  }
  constexpr int64_t kBytes = sizeof(float);
  return kBytes * (batch_size * values + (has_kernels ? 4 : 2) * CountParameters(layers));
}

}  // namespace catchment
