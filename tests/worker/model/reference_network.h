// A model in double precision out of kernels/reference, forward and backward.
#ifndef CATCHMENT_TESTS_WORKER_MODEL_REFERENCE_NETWORK_H_
#define CATCHMENT_TESTS_WORKER_MODEL_REFERENCE_NETWORK_H_

#include <vector>

#include "common/model_shapes.h"
#include "kernels/reference/reference.h"

namespace catchment {

class ReferenceNetwork {
 public:
  ReferenceNetwork(std::vector<LayerShape> layers, uint64_t seed) : layers_(std::move(layers)), seed_(seed) {}

  // The mean loss; dropout on where there are sample_ids.
  double Loss(const std::vector<double>& weights, const std::vector<double>& inputs,
              const std::vector<int32_t>& labels, const uint64_t* sample_ids) {
    n_ = static_cast<int64_t>(labels.size());
    values_ = {inputs};
    where_.assign(layers_.size(), {});
    const double* parameters = weights.data();
    for (size_t i = 0; i < layers_.size(); ++i) {
      values_.push_back(Forward(i, values_.back(), parameters, sample_ids));
      for (const TensorSpec& tensor : layers_[i].tensors) parameters += tensor.size();
    }
    d_logits_.resize(values_.back().size());
    return reference::SoftmaxCrossEntropy(n_, layers_.back().output.size(), values_.back().data(),
                                          labels.data(), d_logits_.data()) /
           static_cast<double>(n_);
  }

  // Of the last Loss, with the same weights and sample_ids.
  std::vector<double> Gradient(const std::vector<double>& weights, const uint64_t* sample_ids) {
    std::vector<double> gradient(weights.size());
    int64_t end = static_cast<int64_t>(weights.size());
    std::vector<double> d = d_logits_;
    for (size_t i = layers_.size(); i-- > 0;) {
      for (const TensorSpec& tensor : layers_[i].tensors) end -= tensor.size();
      d = Backward(i, d, weights.data() + end, sample_ids, gradient.data() + end);
    }
    return gradient;
  }

 private:
  static reference::Window WindowOf(const LayerShape& l) {
    return {l.input.channels, l.input.height, l.input.width, l.output.channels,
            l.kernel_size,    l.stride,       l.padding};
  }

  std::vector<double> Forward(size_t i, std::vector<double> in, const double* p, const uint64_t* sample_ids) {
    const LayerShape& l = layers_[i];
    std::vector<double> out(n_ * l.output.size());
    switch (l.kind) {
      case LayerKind::kConv2d:
        reference::Conv2dForward(n_, WindowOf(l), in.data(), p, p + l.tensors[0].size(), out.data());
        return out;
      case LayerKind::kDense:
        reference::DenseForward(n_, l.fan_in, l.output.size(), in.data(), p, p + l.tensors[0].size(),
                                out.data());
        return out;
      case LayerKind::kMaxPool2d:
        where_[i].resize(out.size());
        reference::MaxPoolForward(n_, WindowOf(l), in.data(), out.data(), where_[i].data());
        return out;
      case LayerKind::kRelu:
        reference::ReluForward<double>(in.size(), in.data());
        return in;
      case LayerKind::kDropout:
        ApplyDropout(i, sample_ids, &in);
        return in;
      case LayerKind::kFlatten:
      case LayerKind::kSynthetic:
        return in;
    }
    return in;
  }

  std::vector<double> Backward(size_t i, std::vector<double> d, const double* p, const uint64_t* sample_ids,
                               double* d_p) {
    const LayerShape& l = layers_[i];
    std::vector<double> d_in(n_ * l.input.size());
    switch (l.kind) {
      case LayerKind::kConv2d:
        reference::Conv2dBackwardWeights(n_, WindowOf(l), values_[i].data(), d.data(), d_p,
                                         d_p + l.tensors[0].size());
        reference::Conv2dBackwardData(n_, WindowOf(l), d.data(), p, d_in.data());
        return d_in;
      case LayerKind::kDense:
        reference::DenseBackwardWeights(n_, l.fan_in, l.output.size(), values_[i].data(), d.data(), d_p,
                                        d_p + l.tensors[0].size());
        reference::DenseBackwardData(n_, l.fan_in, l.output.size(), d.data(), p, d_in.data());
        return d_in;
      case LayerKind::kMaxPool2d:
        reference::MaxPoolBackward(n_, WindowOf(l), d.data(), where_[i].data(), d_in.data());
        return d_in;
      case LayerKind::kRelu:
        reference::ReluBackward<double>(d.size(), values_[i + 1].data(), d.data());
        return d;
      case LayerKind::kDropout:
        ApplyDropout(i, sample_ids, &d);
        return d;
      case LayerKind::kFlatten:
      case LayerKind::kSynthetic:
        return d;
    }
    return d;
  }

  void ApplyDropout(size_t i, const uint64_t* sample_ids, std::vector<double>* values) const {
    if (sample_ids == nullptr) return;
    reference::Dropout(n_, layers_[i].output.size(), layers_[i].rate, seed_, static_cast<int>(i), sample_ids,
                       values->data());
  }

  std::vector<LayerShape> layers_;
  uint64_t seed_;
  int64_t n_ = 0;
  std::vector<std::vector<double>> values_;
  std::vector<std::vector<int64_t>> where_;
  std::vector<double> d_logits_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_WORKER_MODEL_REFERENCE_NETWORK_H_
