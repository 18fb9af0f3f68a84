// The losses of proto/job.proto, with one team of threads for each sample.
#include <cmath>
#include <cstring>
#include <string>

#include "kernels/cuda/node.h"

namespace catchment::cuda {
namespace {

enum Kind { kSoftmaxCrossEntropy = 0, kSigmoidCrossEntropy = 1, kMeanSquaredError = 2 };

// The target of an output: `on` for the label's output, `off` for the others.
struct Targets {
  int outputs;
  bool two_classes;  // with one output
  float on, off;

  CATCHMENT_ON_DEVICE float operator()(int output, int label) const {
    return (two_classes ? label == 1 : output == label) ? on : off;
  }
};

// The targets of one sample: those of its label, or its real targets.
struct LabelTargets {
  const Targets& targets;
  int label;
  CATCHMENT_ON_DEVICE float operator()(int output) const { return targets(output, label); }
};
struct RealTargets {
  const float* targets;
  CATCHMENT_ON_DEVICE float operator()(int output) const { return targets[output]; }
};

CATCHMENT_ON_DEVICE float LogSumExp(const Team& team, const float* z, int n) {
  float largest = -INFINITY, sum = 0;
  for (int i = team.rank; i < n; i += team.size) largest = fmaxf(largest, z[i]);
  largest = team.Max(largest);
  for (int i = team.rank; i < n; i += team.size) sum += expf(z[i] - largest);
  return largest + logf(team.Sum(sum));
}

// Each of these returns the calling thread's part of a sample's loss.

// The targets sum to one.
CATCHMENT_ON_DEVICE float Softmax(const Team& team, const float* z, int label, const Targets& t, float scale,
                                  float* d_z) {
  const float log_sum = LogSumExp(team, z, t.outputs);
  float loss = 0;
  for (int i = team.rank; i < t.outputs; i += team.size) {
    loss += t(i, label) * (log_sum - z[i]);
    if (d_z != nullptr) d_z[i] = scale * (expf(z[i] - log_sum) - t(i, label));
  }
  return loss;
}

// max(z, 0) - t z + log(1 + exp(-|z|)): nothing overflows.
template <typename TargetOf>
CATCHMENT_ON_DEVICE float Sigmoid(const Team& team, const float* z, TargetOf t, int outputs, float scale,
                                  float* d_z) {
  float loss = 0;
  for (int i = team.rank; i < outputs; i += team.size) {
    loss += fmaxf(z[i], 0.0f) - t(i) * z[i] + log1pf(expf(-fabsf(z[i])));
    if (d_z != nullptr) d_z[i] = scale / outputs * (1 / (1 + expf(-z[i])) - t(i));
  }
  return loss / outputs;
}

template <typename TargetOf>
CATCHMENT_ON_DEVICE float SquaredError(const Team& team, const float* z, TargetOf t, int outputs, float scale,
                                       float* d_z) {
  float loss = 0;
  for (int i = team.rank; i < outputs; i += team.size) {
    const float error = z[i] - t(i);
    loss += error * error;
    if (d_z != nullptr) d_z[i] = scale / outputs * 2 * error;
  }
  return loss / outputs;
}

template <typename TargetOf>
CATCHMENT_ON_DEVICE float OutputByOutput(const Team& team, int kind, const float* z, TargetOf t, int outputs,
                                         float scale, float* d_z) {
  return kind == kSigmoidCrossEntropy ? Sigmoid(team, z, t, outputs, scale, d_z)
                                      : SquaredError(team, z, t, outputs, scale, d_z);
}

// Returns to each thread whether the label's output is the largest, or the first of the largest ones.
CATCHMENT_ON_DEVICE bool IsCorrect(const Team& team, const float* z, int label, const Targets& t) {
  if (t.two_classes) return (z[0] > 0) == (label == 1);
  float largest = -INFINITY;
  for (int i = team.rank; i < t.outputs; i += team.size) largest = fmaxf(largest, z[i]);
  largest = team.Max(largest);
  int first = team.rank;
  while (first < t.outputs && z[first] != largest) first += team.size;
  // The smallest index, which float32 represents up to 2^24.
  return -team.Max(-static_cast<float>(first)) == static_cast<float>(label);
}

int NumClasses(const CatchmentCudaLossSpec& spec) {
  return spec.kind == kSigmoidCrossEntropy && spec.num_outputs == 1 ? 2 : spec.num_outputs;
}

}  // namespace

Loss::Loss(Device* device, const CatchmentCudaLossSpec& spec, const Tensor& outputs)
    : device_(device),
      spec_(spec),
      outputs_(outputs),
      staged_labels_(device, spec.batch_size),
      labels_(device, spec.batch_size),
      staged_targets_(device, spec.batch_size * spec.num_outputs),
      targets_(device, spec.batch_size * spec.num_outputs),
      scores_(device, 2 * spec.batch_size),
      staged_scores_(device, 2 * spec.batch_size) {}

void Loss::LoadLabels(const int32_t* labels, int samples) {
  for (int s = 0; s < samples; ++s) {
    if (labels[s] < 0 || labels[s] >= NumClasses(spec_)) {
      throw Error("label " + std::to_string(labels[s]) + " of " + std::to_string(NumClasses(spec_)) +
                  " classes");
    }
  }
  std::memcpy(staged_labels_.data(), labels, samples * sizeof *labels);
  device_->CopyIn(labels_.data(), staged_labels_.data(), samples * sizeof *labels);
}

void Loss::LoadTargets(const float* targets, int samples) {
  if (spec_.kind == kSoftmaxCrossEntropy) throw Error("softmax cross-entropy of real targets");
  const int64_t bytes = int64_t{samples} * spec_.num_outputs * sizeof *targets;
  std::memcpy(staged_targets_.data(), targets, bytes);
  device_->CopyIn(targets_.data(), staged_targets_.data(), bytes);
}

void Loss::Run(const int32_t* labels, const float* targets, int samples, bool gradient) {
  if (targets != nullptr) {
    LoadTargets(targets, samples);
  } else {
    LoadLabels(labels, samples);
  }
  Score(samples, targets != nullptr, gradient);
  samples_ = samples;
  sent_ = device_->CopyOut(staged_scores_.data(), scores_.data(), scores_.bytes());
}

CatchmentCudaScore Loss::Await() {
  device_->Await(sent_);
  CatchmentCudaScore score = {};
  for (int s = 0; s < samples_; ++s) {
    score.loss_sum += staged_scores_.data()[s];
    score.correct += staged_scores_.data()[spec_.batch_size + s] != 0;
  }
  return score;
}

void Loss::Score(int samples, bool real, bool gradient) {
  const float off = spec_.label_smoothing / static_cast<float>(NumClasses(spec_));
  const Targets targets{spec_.num_outputs, NumClasses(spec_) != spec_.num_outputs,
                        1 - spec_.label_smoothing + off, off};
  const int kind = spec_.kind, batch = spec_.batch_size;
  const float scale = gradient_scale_ / static_cast<float>(samples);
  const float* const z = outputs_.value;
  float *const d_z = outputs_.gradient, *const scores = scores_.data();
  const int32_t* const labels = labels_.data();
  const float* const real_targets = real ? targets_.data() : nullptr;
  device_->ForEachRow(batch, targets.outputs, [=] CATCHMENT_ON_DEVICE(int s, const Team& team) {
    const float* const row = z + s * targets.outputs;
    float* const d_row = gradient ? d_z + s * targets.outputs : nullptr;
    if (s >= samples) {
      for (int i = team.rank; gradient && i < targets.outputs; i += team.size) d_row[i] = 0;
      return;
    }
    float part;
    bool correct = false;
    if (real_targets != nullptr) {
      const RealTargets own{real_targets + s * targets.outputs};
      part = OutputByOutput(team, kind, row, own, targets.outputs, scale, d_row);
    } else {
      const int label = labels[s];
      part = kind == kSoftmaxCrossEntropy ? Softmax(team, row, label, targets, scale, d_row)
                                          : OutputByOutput(team, kind, row, LabelTargets{targets, label},
                                                           targets.outputs, scale, d_row);
      correct = IsCorrect(team, row, label, targets);
    }
    const float loss = team.Sum(part);
    if (team.rank > 0) return;
    scores[s] = loss;
    scores[batch + s] = correct ? 1.0f : 0.0f;
  });
}

}  // namespace catchment::cuda
