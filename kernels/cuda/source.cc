#include "kernels/cuda/loops.h"
#include "kernels/cuda/node.h"

namespace catchment::cuda {

Source::Source(Device* device, const CatchmentCudaShape& shape, int64_t batch)
    : output(device, shape, batch),
      device_(device),
      staged_(device, output->size()),
      plain_(device, output->is_image() && shape.channels > 1 ? output->size() : 0) {}

void Source::Load(const float* inputs, int samples) {
  const int64_t loaded = samples * output->sample_size();
  const bool reorder = plain_.size() > 0;
  device_->CopyIn(reorder ? plain_.data() : output->value, staged_.Read(inputs, loaded),
                  loaded * sizeof(float));
  if (reorder) {
    ToDeviceOrder(device_, samples, static_cast<int>(output->shape.channels),
                  static_cast<int>(output->area()), plain_.data(), output->value);
  }
  if (samples < output->batch) ClearPadding(samples);
}

void Source::ClearPadding(int samples) {
  float* const padding = output->value + samples * output->sample_size();
  device_->ForEach((output->batch - samples) * output->sample_size(),
                   [=] CATCHMENT_ON_DEVICE(int i) { padding[i] = 0; });
}

Flattening::Flattening(Device* device, const Tensor& image)
    : output(device, {image.sample_size(), 1, 1, 1}, image.batch), device_(device), image_(image) {}

void Flattening::Forward() {
  ToHostOrder(device_, image_.batch, static_cast<int>(image_.shape.channels), static_cast<int>(image_.area()),
              image_.value, output->value);
}

void Flattening::Backward() {
  ToDeviceOrder(device_, image_.batch, static_cast<int>(image_.shape.channels),
                static_cast<int>(image_.area()), output->gradient, image_.gradient);
}

Fork::Fork(Device* device, const Tensor& tensor, int readers) : device_(device), tensor_(tensor) {
  if (tensor.gradient_is_masked != nullptr) *tensor.gradient_is_masked = true;
  for (int i = 0; i < readers; ++i) {
    gradients_.emplace_back(device, tensor.size() * BytesOf(tensor.storage));
    Tensor& view = views.emplace_back(tensor);
    view.gradient = reinterpret_cast<float*>(gradients_.back().data());
    view.gradient_may_be_shared = true;
    view.gradient_is_masked = nullptr;
    view.normalizer = nullptr;
  }
}

void Fork::SumGradients() {
  const FactorWriter sum = {tensor_.gradient, tensor_.storage};
  const bool masks = tensor_.gradient_is_masked != nullptr;
  for (size_t reader = 1; reader < views.size(); ++reader) {
    const FactorReader before = {reader == 1 ? views[0].gradient : tensor_.gradient, tensor_.storage};
    const FactorReader added = {views[reader].gradient, tensor_.storage};
    const FactorReader mask = {masks && reader + 1 == views.size() ? tensor_.value : nullptr,
                               tensor_.storage};
    WithPackWidth<8>(tensor_.size(), [&](auto width) { SumPacks<width()>(before, added, mask, sum); });
  }
}

template <int kWidth>
void Fork::SumPacks(FactorReader a, FactorReader b, FactorReader mask, FactorWriter sum) {
  device_->ForEach(tensor_.size() / kWidth, [=] CATCHMENT_ON_DEVICE(int i) {
    const int64_t at = int64_t{i} * kWidth;
    auto values = a.Read<kWidth>(at);
    const auto others = b.Read<kWidth>(at);
    for (int k = 0; k < kWidth; ++k) values.at[k] += others.at[k];
    if (mask.from != nullptr) values = ZeroWhereNotPositive(mask.Read<kWidth>(at), values);
    sum.Write(at, values);
  });
}

}  // namespace catchment::cuda
