// The layers of images: conv2d, max_pool, average_pool and global_average_pool.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/job/layer_rules.h"

namespace catchment {
namespace {

void FillConvolution(v1::Layer* layer) {
  v1::Conv2d& conv = *layer->mutable_conv2d();
  if (!conv.has_stride()) conv.set_stride(1);
  if (!conv.has_padding()) conv.set_padding(0);
  if (!conv.has_groups()) conv.set_groups(1);
  if (!conv.has_bias()) conv.set_bias(true);
}

// kPool is the accessor of the layer's field.
template <auto kPool>
void FillPool(v1::Layer* layer) {
  auto& pool = *(layer->*kPool)();
  if (!pool.has_stride()) pool.set_stride(pool.size());
  if (!pool.has_padding()) pool.set_padding(0);
}

// Returns false, after reporting the problem, if the input is not an image; the caller must then empty
// at->shape.
bool TakesImages(LayerInference* at) {
  if (!at->shape || at->shape->kind == SampleKind::kImage) return true;
  at->Problem("",
              at->shape->is_vector()
                  ? absl::StrCat("its input is a vector of ", at->shape->channels,
                                 ", but it needs channels x height x width; put it before flatten and dense")
                  : absl::StrCat("its input is a sequence, ", ToString(*at->shape),
                                 ", but it needs channels x height x width"));
  return false;
}

int64_t SmallerSide(const SampleShape& shape) { return std::min(shape.height, shape.width); }

// Returns true if the window is valid and fits into a known input; otherwise empties at->shape.
bool Slide(const char* size_field, const LayerShape& out, LayerInference* at) {
  bool sound = TakesImages(at);
  if (out.kernel_size == 0) {
    at->Problem(absl::StrCat(".", size_field), "is required, at least 1");
    sound = false;
  } else if (out.stride == 0) {
    at->Problem(".stride", "is 0; it must be at least 1");
    sound = false;
  } else if (sound && at->shape && out.kernel_size > SmallerSide(*at->shape) + 2 * out.padding) {
    at->Problem(absl::StrCat(".", size_field),
                absl::StrCat(out.kernel_size, " is larger than its input, ", ToString(*at->shape),
                             out.padding ? absl::StrCat(" with padding ", out.padding) : ""));
    sound = false;
  }
  if (!sound) at->shape.reset();
  return at->shape.has_value();
}

// Sets the sides of the output: the number of windows along each side of a known input.
void Narrow(const LayerShape& layer, LayerInference* at) {
  if (!at->shape) return;
  const auto narrowed = [&](int64_t side) {
    return (side + 2 * layer.padding - layer.kernel_size) / layer.stride + 1;
  };
  at->shape->height = narrowed(at->shape->height);
  at->shape->width = narrowed(at->shape->width);
}

bool GroupsDivide(int64_t filters, int64_t groups, LayerInference* at) {
  if (groups == 0) {
    at->Problem(".groups", "is 0; it must be at least 1");
  } else if (filters % groups != 0 || at->shape->channels % groups != 0) {
    at->Problem(".groups", absl::StrCat(groups, " does not divide both the ", at->shape->channels,
                                        " channels of its input and its ", filters, " filters"));
  } else {
    return true;
  }
  at->shape.reset();
  return false;
}

void InferConvolution(const v1::Layer& layer, LayerShape* out, LayerInference* at) {
  const v1::Conv2d& conv = layer.conv2d();
  out->kernel_size = conv.kernel_size();
  out->stride = conv.stride();
  out->padding = conv.padding();
  out->groups = conv.groups();
  out->bias = conv.bias();
  if (conv.filters() == 0) at->Problem(".filters", "is required, at least 1");
  at->CheckInitializer(conv.initializer());
  if (conv.kernel_size() > 0 && conv.padding() >= conv.kernel_size()) {
    at->Problem(".padding", absl::StrCat(conv.padding(), " is not below the kernel_size ", conv.kernel_size(),
                                         ": the outermost windows would contain only zeros"));
  }
  if (!Slide("kernel_size", *out, at) || !GroupsDivide(conv.filters(), out->groups, at)) return;
  at->AddWeight({conv.filters(), at->shape->channels / out->groups, out->kernel_size, out->kernel_size},
                conv.initializer(), out);
  at->shape->channels = conv.filters();
  if (conv.filters() == 0) at->shape.reset();
  Narrow(*out, at);
}

template <auto kPool>
void InferPool(const v1::Layer& layer, LayerShape* out, LayerInference* at) {
  const auto& pool = (layer.*kPool)();
  out->kernel_size = pool.size();
  out->stride = pool.stride();
  out->padding = pool.padding();
  if (pool.size() > 0 && pool.padding() > pool.size() / 2) {
    at->Problem(".padding", absl::StrCat(pool.padding(), " is above half of the size ", pool.size(),
                                         ": the outermost windows would contain little but padding"));
  }
  if (Slide("size", *out, at)) Narrow(*out, at);
}

void InferGlobalAveragePool(const v1::Layer&, LayerShape*, LayerInference* at) {
  if (!TakesImages(at)) at->shape.reset();
  if (at->shape) at->shape = SampleShape::Vector(at->shape->channels);
}

}  // namespace

absl::Span<const LayerRule> ImageLayers() {
  static constexpr LayerRule kRules[] = {
      {LayerKind::kConv2D, FillConvolution, InferConvolution},
      {LayerKind::kMaxPool, FillPool<&v1::Layer::mutable_max_pool>, InferPool<&v1::Layer::max_pool>},
      {LayerKind::kAveragePool, FillPool<&v1::Layer::mutable_average_pool>,
       InferPool<&v1::Layer::average_pool>},
      {LayerKind::kGlobalAveragePool, nullptr, InferGlobalAveragePool},
  };
  return kRules;
}

}  // namespace catchment
