// The losses in plain loops. Each returns the sum of the loss over the samples; d_outputs = gradient of the
// mean.
//
// Shapes: outputs N x size; labels 0 .. classes-1; targets, real numbers, N x size. smoothing: a target t of
// a label becomes (1 - s) t + s / classes.
#ifndef CATCHMENT_TESTS_KERNELS_REFERENCE_LOSSES_H_
#define CATCHMENT_TESTS_KERNELS_REFERENCE_LOSSES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/reference/activations.h"

namespace catchment::reference {

// Returns the target of output i; there is one output for each class, or one for two classes.
template <typename T>
T Target(int64_t size, int64_t i, int32_t label, T smoothing) {
  const T t = size == 1 ? T(label) : T(i == label);
  return (1 - smoothing) * t + smoothing / static_cast<T>(size == 1 ? 2 : size);
}

template <typename T>
double SoftmaxCrossEntropy(int64_t n, int64_t classes, T smoothing, const T* logits, const int32_t* labels,
                           T* d_logits) {
  double loss = 0;
  for (int64_t s = 0; s < n; ++s, logits += classes, d_logits += classes) {
    const T largest = *std::max_element(logits, logits + classes);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(logits[c] - largest));
    for (int64_t c = 0; c < classes; ++c) {
      const double log_softmax = static_cast<double>(logits[c] - largest) - std::log(sum);
      const T t = classes == 1 ? T{1} : Target(classes, c, labels[s], smoothing);
      loss -= t * log_softmax;
      d_logits[c] = static_cast<T>((std::exp(log_softmax) - t) / static_cast<double>(n));
    }
  }
  return loss;
}

template <typename T>
double SigmoidCrossEntropy(int64_t n, int64_t size, const T* outputs, const T* targets, T* d_outputs) {
  double loss = 0;
  for (int64_t s = 0; s < n; ++s) {
    for (int64_t i = 0; i < size; ++i, ++outputs, ++d_outputs, ++targets) {
      const T t = *targets;
      const double log_one = -std::log1p(std::exp(-static_cast<double>(*outputs)));  // log sigmoid(z)
      const double log_zero = -std::log1p(std::exp(static_cast<double>(*outputs)));  // log (1 - sigmoid(z))
      loss -= (t * log_one + (1 - t) * log_zero) / static_cast<double>(size);
      *d_outputs = (Sigmoid(*outputs) - t) / static_cast<T>(n * size);
    }
  }
  return loss;
}

template <typename T>
double MeanSquaredError(int64_t n, int64_t size, const T* outputs, const T* targets, T* d_outputs) {
  double loss = 0;
  for (int64_t s = 0; s < n; ++s) {
    for (int64_t i = 0; i < size; ++i, ++outputs, ++d_outputs, ++targets) {
      const T error = *outputs - *targets;
      loss += error * error / static_cast<double>(size);
      *d_outputs = 2 * error / static_cast<T>(n * size);
    }
  }
  return loss;
}

template <typename T>
double SigmoidCrossEntropy(int64_t n, int64_t size, T smoothing, const T* outputs, const int32_t* labels,
                           T* d_outputs) {
  std::vector<T> targets;
  for (int64_t s = 0; s < n; ++s) {
    for (int64_t i = 0; i < size; ++i) targets.push_back(Target(size, i, labels[s], smoothing));
  }
  return SigmoidCrossEntropy(n, size, outputs, targets.data(), d_outputs);
}

template <typename T>
double MeanSquaredError(int64_t n, int64_t size, const T* outputs, const int32_t* labels, T* d_outputs) {
  std::vector<T> one_hot(n * size);
  for (int64_t s = 0; s < n; ++s) one_hot[s * size + labels[s]] = 1;
  return MeanSquaredError(n, size, outputs, one_hot.data(), d_outputs);
}

}  // namespace catchment::reference

#endif  // CATCHMENT_TESTS_KERNELS_REFERENCE_LOSSES_H_
