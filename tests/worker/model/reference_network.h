// A model in double precision out of tests/kernels/reference, forward and backward.
#ifndef CATCHMENT_TESTS_WORKER_MODEL_REFERENCE_NETWORK_H_
#define CATCHMENT_TESTS_WORKER_MODEL_REFERENCE_NETWORK_H_

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "common/job/model_shapes.h"
#include "kernels/backend.h"
#include "tests/kernels/reference/activations.h"
#include "tests/kernels/reference/losses.h"
#include "tests/kernels/reference/lstm.h"
#include "tests/kernels/reference/normalization.h"
#include "tests/kernels/reference/reference.h"

namespace catchment {

class ReferenceNetwork {
 public:
  ReferenceNetwork(std::vector<LayerShape> layers, uint64_t seed, const LossSpec& loss = {})
      : layers_(std::move(layers)), seed_(seed), loss_(loss) {}

  // The mean loss; dropout on where there are sample_ids. Batch norm takes the minibatch's statistics.
  double Loss(const std::vector<double>& weights, const std::vector<double>& inputs,
              const std::vector<int32_t>& labels, const uint64_t* sample_ids) {
    n_ = static_cast<int64_t>(labels.size());
    inputs_ = inputs;
    values_.clear();
    where_.assign(layers_.size(), {});
    const double* parameters = weights.data();
    for (size_t i = 0; i < layers_.size(); ++i) {
      values_.push_back(Forward(i, parameters, sample_ids));
      for (const TensorSpec& tensor : layers_[i].tensors) parameters += tensor.size();
    }
    d_outputs_.resize(values_.back().size());
    return Loss(values_.back(), labels) / static_cast<double>(n_);
  }

  // Returns the gradient of the last Loss, which must have had the same weights and sample_ids.
  std::vector<double> Gradient(const std::vector<double>& weights, const uint64_t* sample_ids) {
    std::vector<double> gradient(weights.size());
    int64_t end = static_cast<int64_t>(weights.size());
    std::vector<std::vector<double>> d(layers_.size());
    for (size_t i = 0; i < layers_.size(); ++i) d[i].resize(values_[i].size());
    d.back() = d_outputs_;
    for (size_t i = layers_.size(); i-- > 0;) {
      for (const TensorSpec& tensor : layers_[i].tensors) end -= tensor.size();
      const std::vector<double> d_in =
          Backward(i, d[i], weights.data() + end, sample_ids, gradient.data() + end);
      for (int input : layers_[i].inputs) {
        for (size_t k = 0; input != LayerShape::kData && k < d_in.size(); ++k) d[input][k] += d_in[k];
      }
    }
    return gradient;
  }

 private:
  double Loss(const std::vector<double>& outputs, const std::vector<int32_t>& labels) {
    const int64_t size = layers_.back().output.size();
    const double smoothing = loss_.label_smoothing;
    switch (loss_.kind) {
      case LossSpec::Kind::kSoftmaxCrossEntropy:
        return reference::SoftmaxCrossEntropy(n_, size, smoothing, outputs.data(), labels.data(),
                                              d_outputs_.data());
      case LossSpec::Kind::kSigmoidCrossEntropy:
        return reference::SigmoidCrossEntropy(n_, size, smoothing, outputs.data(), labels.data(),
                                              d_outputs_.data());
      case LossSpec::Kind::kMeanSquaredError:
        return reference::MeanSquaredError(n_, size, outputs.data(), labels.data(), d_outputs_.data());
    }
    return 0;
  }

  static reference::Window WindowOf(const LayerShape& l) {
    return {l.input.channels, l.input.height, l.input.width, l.output.channels,
            l.kernel_size,    l.stride,       l.padding,     l.groups};
  }
  static int64_t AreaOf(const LayerShape& l) { return l.input.height * l.input.width; }
  static reference::LstmShape LstmOf(const LayerShape& l) {
    return {l.input.channels, l.input.width, l.tensors[1].shape[1], l.output.is_sequence()};
  }
  reference::BatchShape BatchOf(const LayerShape& l) const {
    return {n_, l.input.channels, AreaOf(l), l.ghost_batch > 0 ? l.ghost_batch : n_};
  }
  // Returns the number of values that softmax and layer_norm normalise together.
  static int64_t RowOf(const LayerShape& l) { return l.input.is_sequence() ? l.input.width : l.input.size(); }
  int64_t RowsOf(const LayerShape& l) const { return n_ * l.input.size() / RowOf(l); }

  template <typename T>
  static T* BiasOf(const LayerShape& l, T* parameters) {
    return l.bias ? parameters + l.tensors[0].size() : nullptr;
  }

  const std::vector<double>& Input(size_t i, size_t which = 0) const {
    const int input = layers_[i].inputs[which];
    return input == LayerShape::kData ? inputs_ : values_[input];
  }

  std::vector<double> Forward(size_t i, const double* p, const uint64_t* sample_ids) {
    const LayerShape& l = layers_[i];
    const std::vector<double>& in = Input(i);
    std::vector<double> out(n_ * l.output.size());
    const auto map = [&](double (*f)(double)) { std::transform(in.begin(), in.end(), out.begin(), f); };
    switch (l.kind) {
      case LayerKind::kConv2D:
        reference::Conv2dForward(n_, WindowOf(l), in.data(), p, BiasOf(l, p), out.data());
        return out;
      case LayerKind::kDense:
        reference::DenseForward(n_, l.fan_in, l.output.size(), in.data(), p, BiasOf(l, p), out.data());
        return out;
      case LayerKind::kMaxPool:
        where_[i].resize(out.size());
        reference::MaxPoolForward(n_, WindowOf(l), in.data(), out.data(), where_[i].data());
        return out;
      case LayerKind::kAveragePool:
        reference::AveragePoolForward(n_, WindowOf(l), in.data(), out.data());
        return out;
      case LayerKind::kGlobalAveragePool:
        reference::ChannelMeansForward(n_ * l.input.channels, AreaOf(l), in.data(), out.data());
        return out;
      case LayerKind::kRelu:
        out = in;
        reference::ReluForward<double>(out.size(), out.data());
        return out;
      case LayerKind::kGelu:
        map(reference::Gelu<double>);
        return out;
      case LayerKind::kTanh:
        map(std::tanh);
        return out;
      case LayerKind::kSigmoid:
        map(reference::Sigmoid<double>);
        return out;
      case LayerKind::kSoftmax:
        reference::SoftmaxForward(RowsOf(l), RowOf(l), in.data(), out.data());
        return out;
      case LayerKind::kBatchNorm:
        reference::BatchNormForward<double>(BatchOf(l), l.epsilon, in.data(), p, p + l.tensors[0].size(),
                                            out.data());
        return out;
      case LayerKind::kLayerNorm:
        reference::LayerNormForward<double>(RowsOf(l), RowOf(l), l.epsilon, in.data(), p,
                                            p + l.tensors[0].size(), out.data());
        return out;
      case LayerKind::kLstm:
        reference::LstmForward(n_, LstmOf(l), in.data(), p, out.data());
        return out;
      case LayerKind::kResidual:
        std::transform(in.begin(), in.end(), Input(i, 1).begin(), out.begin(), std::plus<>());
        return out;
      case LayerKind::kDropout:
        out = in;
        ApplyDropout(i, sample_ids, &out);
        return out;
      case LayerKind::kFlatten:
      case LayerKind::KIND_NOT_SET:
        return in;
    }
    return in;
  }

  // The gradient of each input.
  std::vector<double> Backward(size_t i, std::vector<double> d, const double* p, const uint64_t* sample_ids,
                               double* d_p) {
    const LayerShape& l = layers_[i];
    const std::vector<double>& in = Input(i);
    const std::vector<double>& out = values_[i];
    std::vector<double> d_in(n_ * l.input.size());
    switch (l.kind) {
      case LayerKind::kConv2D:
        reference::Conv2dBackwardWeights(n_, WindowOf(l), in.data(), d.data(), d_p, BiasOf(l, d_p));
        reference::Conv2dBackwardData(n_, WindowOf(l), d.data(), p, d_in.data());
        return d_in;
      case LayerKind::kDense:
        reference::DenseBackwardWeights(n_, l.fan_in, l.output.size(), in.data(), d.data(), d_p,
                                        BiasOf(l, d_p));
        reference::DenseBackwardData(n_, l.fan_in, l.output.size(), d.data(), p, d_in.data());
        return d_in;
      case LayerKind::kMaxPool:
        reference::MaxPoolBackward(n_, WindowOf(l), d.data(), where_[i].data(), d_in.data());
        return d_in;
      case LayerKind::kAveragePool:
        reference::AveragePoolBackward(n_, WindowOf(l), d.data(), d_in.data());
        return d_in;
      case LayerKind::kGlobalAveragePool:
        reference::ChannelMeansBackward(n_ * l.input.channels, AreaOf(l), d.data(), d_in.data());
        return d_in;
      case LayerKind::kRelu:
        reference::ReluBackward<double>(d.size(), out.data(), d.data());
        return d;
      case LayerKind::kGelu:
        for (size_t k = 0; k < d.size(); ++k) d[k] *= reference::GeluDerivative(in[k]);
        return d;
      case LayerKind::kTanh:
        for (size_t k = 0; k < d.size(); ++k) d[k] *= 1 - out[k] * out[k];
        return d;
      case LayerKind::kSigmoid:
        for (size_t k = 0; k < d.size(); ++k) d[k] *= out[k] * (1 - out[k]);
        return d;
      case LayerKind::kSoftmax:
        reference::SoftmaxBackward(RowsOf(l), RowOf(l), out.data(), d.data(), d_in.data());
        return d_in;
      case LayerKind::kBatchNorm:
        reference::BatchNormBackward<double>(BatchOf(l), l.epsilon, in.data(), p, d.data(), d_in.data(), d_p,
                                             d_p + l.tensors[0].size());
        return d_in;
      case LayerKind::kLayerNorm:
        reference::LayerNormBackward<double>(RowsOf(l), RowOf(l), l.epsilon, in.data(), p, d.data(),
                                             d_in.data(), d_p, d_p + l.tensors[0].size());
        return d_in;
      case LayerKind::kLstm:
        reference::LstmBackward(n_, LstmOf(l), in.data(), p, d.data(), d_in.data(), d_p);
        return d_in;
      case LayerKind::kDropout:
        ApplyDropout(i, sample_ids, &d);
        return d;
      case LayerKind::kResidual:
      case LayerKind::kFlatten:
      case LayerKind::KIND_NOT_SET:
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
  LossSpec loss_;
  int64_t n_ = 0;
  std::vector<double> inputs_;
  std::vector<std::vector<double>> values_;  // of each layer
  std::vector<std::vector<int64_t>> where_;
  std::vector<double> d_outputs_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_WORKER_MODEL_REFERENCE_NETWORK_H_
