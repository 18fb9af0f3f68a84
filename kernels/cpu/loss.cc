#include "kernels/cpu/loss.h"

#include <algorithm>
#include <cmath>

#include "glog/logging.h"

namespace catchment {
namespace {

class CpuLoss final : public Loss {
 public:
  CpuLoss(CpuContext* context, int num_classes, int batch_size, const CpuActivation* logits)
      : classes_(num_classes),
        batch_size_(batch_size),
        logits_(context, logits, PlainLayout(logits->layout().dims())) {}

  Score Run(const int32_t* labels, int samples, bool gradient) override {
    logits_.Pull();
    Score score;
    score.samples = samples;
    const float* row = static_cast<const float*>(logits_.value().get_data_handle());
    float* d_row = static_cast<float*>(logits_.gradient().get_data_handle());
    for (int i = 0; i < samples; ++i, row += classes_, d_row += classes_) {
      CHECK(labels[i] >= 0 && labels[i] < classes_)
          << "label " << labels[i] << " of " << classes_ << " classes";
      const double log_sum = LogSumExp(row);
      score.loss_sum += log_sum - row[labels[i]];
      score.correct += IsCorrect(row, labels[i]);
      if (gradient) WriteGradient(row, static_cast<float>(log_sum), labels[i], 1.0f / samples, d_row);
    }
    if (gradient) {
      std::fill_n(d_row, (batch_size_ - samples) * classes_, 0.0f);
      logits_.Push();
    }
    return score;
  }

 private:
  double LogSumExp(const float* row) const {
    const float largest = *std::max_element(row, row + classes_);
    float sum = 0;
    for (int64_t c = 0; c < classes_; ++c) sum += std::exp(row[c] - largest);
    return static_cast<double>(largest) + std::log(static_cast<double>(sum));
  }

  // False, not true, where there is a NaN.
  bool IsCorrect(const float* row, int32_t label) const {
    for (int64_t c = 0; c < classes_; ++c) {
      if (c < label ? !(row[c] < row[label]) : !(row[c] <= row[label])) return false;
    }
    return true;
  }

  void WriteGradient(const float* row, float log_sum, int32_t label, float scale, float* d_row) const {
    for (int64_t c = 0; c < classes_; ++c) d_row[c] = scale * std::exp(row[c] - log_sum);
    d_row[label] -= scale;
  }

  int64_t classes_;
  int64_t batch_size_;
  InputPort logits_;
};

}  // namespace

std::unique_ptr<Loss> MakeCpuLoss(CpuContext* context, int num_classes, int batch_size,
                                  const CpuActivation* logits) {
  return std::make_unique<CpuLoss>(context, num_classes, batch_size, logits);
}

}  // namespace catchment
