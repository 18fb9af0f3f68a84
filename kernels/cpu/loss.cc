// The losses, in loops of our own, since a sample has few outputs.
#include <algorithm>
#include <cmath>

#include "glog/logging.h"
#include "kernels/cpu/layers.h"

namespace catchment {
namespace {

class CpuLoss final : public Loss {
 public:
  CpuLoss(CpuContext* context, const LossSpec& spec, const CpuActivation* outputs)
      : spec_(spec),
        size_(spec.num_outputs),
        outputs_(context, outputs, PlainLayout(outputs->layout().dims())) {
    // The smoothed targets of a one-hot label; with one output for two classes the label itself is smoothed
    // towards 1/2.
    off_ = spec.label_smoothing / static_cast<float>(spec.num_classes());
    on_ = 1 - spec.label_smoothing + off_;
  }

  void Run(const int32_t* labels, const float* targets, int samples, bool gradient) override {
    outputs_.Pull();
    Score& score = score_ = {};
    score.samples = samples;
    const float* row = static_cast<const float*>(outputs_.value().get_data_handle());
    float* d_row = static_cast<float*>(outputs_.gradient().get_data_handle());
    const float scale = 1.0f / static_cast<float>(samples);
    for (int i = 0; i < samples; ++i, row += size_, d_row += size_) {
      float* const d = gradient ? d_row : nullptr;
      if (targets != nullptr) {
        score.loss_sum += RunReal(row, targets + i * size_, scale, d);
        continue;
      }
      CHECK(labels[i] >= 0 && labels[i] < spec_.num_classes())
          << "label " << labels[i] << " of " << spec_.num_classes() << " classes";
      score.loss_sum += RunSample(row, labels[i], scale, d);
      score.correct += IsCorrect(row, labels[i]);
    }
    if (gradient) {
      std::fill_n(d_row, (spec_.batch_size - samples) * size_, 0.0f);
      outputs_.Push();
    }
  }

  Score AwaitScore() override { return score_; }

 private:
  float Target(int64_t output, int32_t label) const {
    const bool is_on = size_ == spec_.num_classes() ? output == label : label == 1;
    return is_on ? on_ : off_;
  }

  // Returns a function from an output to its target.
  auto OfLabel(int32_t label) const {
    return [this, label](int64_t output) { return Target(output, label); };
  }

  // Returns the loss of a sample, and writes `scale` times its gradient to d_row unless that is null.
  double RunSample(const float* row, int32_t label, float scale, float* d_row) const {
    switch (spec_.kind) {
      case LossSpec::Kind::kSoftmaxCrossEntropy:
        return Softmax(row, label, scale, d_row);
      case LossSpec::Kind::kSigmoidCrossEntropy:
        return Sigmoid(row, OfLabel(label), scale / static_cast<float>(size_), d_row);
      case LossSpec::Kind::kMeanSquaredError:
        return SquaredError(row, OfLabel(label), scale / static_cast<float>(size_), d_row);
    }
    return 0;
  }

  // Does the same for real targets.
  double RunReal(const float* row, const float* targets, float scale, float* d_row) const {
    CHECK(spec_.kind != LossSpec::Kind::kSoftmaxCrossEntropy) << "softmax cross-entropy of real targets";
    const auto target = [targets](int64_t output) { return targets[output]; };
    scale /= static_cast<float>(size_);
    return spec_.kind == LossSpec::Kind::kSigmoidCrossEntropy ? Sigmoid(row, target, scale, d_row)
                                                              : SquaredError(row, target, scale, d_row);
  }

  // The targets sum to one, so the loss is log(sum exp z) - sum t z.
  double Softmax(const float* row, int32_t label, float scale, float* d_row) const {
    const double log_sum = LogSumExp(row);
    double loss = (on_ - off_) * (log_sum - row[label]);
    for (int64_t c = 0; off_ > 0 && c < size_; ++c) loss += off_ * (log_sum - row[c]);
    if (d_row == nullptr) return loss;
    for (int64_t c = 0; c < size_; ++c) {
      d_row[c] = scale * (std::exp(row[c] - static_cast<float>(log_sum)) - off_);
    }
    d_row[label] -= scale * (on_ - off_);
    return loss;
  }

  double LogSumExp(const float* row) const {
    const float largest = *std::max_element(row, row + size_);
    float sum = 0;
    for (int64_t c = 0; c < size_; ++c) sum += std::exp(row[c] - largest);
    return static_cast<double>(largest) + std::log(static_cast<double>(sum));
  }

  // -t log s(z) - (1 - t) log(1 - s(z)) = max(z, 0) - t z + log(1 + exp(-|z|)), which does not overflow.
  template <typename TargetOf>
  double Sigmoid(const float* row, TargetOf target, float scale, float* d_row) const {
    double loss = 0;
    for (int64_t i = 0; i < size_; ++i) {
      const float z = row[i], t = target(i);
      const double e = std::exp(-std::fabs(static_cast<double>(z)));
      loss += std::max(z, 0.0f) - static_cast<double>(t) * z + std::log1p(e);
      if (d_row != nullptr) d_row[i] = scale * (static_cast<float>((z >= 0 ? 1 : e) / (1 + e)) - t);
    }
    return loss / static_cast<double>(size_);
  }

  template <typename TargetOf>
  double SquaredError(const float* row, TargetOf target, float scale, float* d_row) const {
    double loss = 0;
    for (int64_t i = 0; i < size_; ++i) {
      const float error = row[i] - target(i);
      loss += static_cast<double>(error) * error;
      if (d_row != nullptr) d_row[i] = 2 * scale * error;
    }
    return loss / static_cast<double>(size_);
  }

  // With a NaN the comparison, and so the result, is false.
  bool IsCorrect(const float* row, int32_t label) const {
    if (size_ < spec_.num_classes()) return label == 1 ? row[0] > 0 : row[0] <= 0;
    for (int64_t c = 0; c < size_; ++c) {
      if (c < label ? !(row[c] < row[label]) : !(row[c] <= row[label])) return false;
    }
    return true;
  }

  LossSpec spec_;
  int64_t size_;
  float on_, off_;  // targets
  Score score_;     // of the last run
  InputPort outputs_;
};

}  // namespace

std::unique_ptr<Loss> MakeCpuLoss(CpuContext* context, const LossSpec& spec, const CpuActivation* outputs) {
  return std::make_unique<CpuLoss>(context, spec, outputs);
}

}  // namespace catchment
