#include "worker/loop/score_test_set.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/data/sample_threads.h"

namespace catchment {
namespace {

// The least number of training samples for the mean and variance of batch_norm, if there are that many.
constexpr int64_t kSamplesForStatistics = 1024;

// Returns the samples of whole minibatches, in which batch_norm saw samples in training.
int64_t SamplesForStatistics(const Dataset& train, int64_t batch_size) {
  const int64_t batches = (kSamplesForStatistics + batch_size - 1) / batch_size;
  return std::min(train.size(), batches * batch_size);
}

// Gives `count` samples of a data set in minibatches, in order and as far from each other as may be.
class SampleReader {
 public:
  SampleReader(const Dataset* data, int64_t count, int64_t batch_size, SampleThreads* threads)
      : data_(*data),
        threads_(*threads),
        count_(count),
        batch_size_(batch_size),
        inputs_(batch_size * data->input_shape().size()),
        labels_(data->target().is_real() ? 0 : batch_size),
        targets_(batch_size * data->target().reals) {}

  // Returns false if there are no more, or if `status` is an error.
  bool Next(Minibatch* batch) {
    const int64_t n = std::min(batch_size_, count_ - next_);
    if (n == 0 || !status_.ok()) return false;
    status_ = threads_.Run(n, [this](int, int64_t i) { return Read(i); });
    if (!status_.ok()) return false;
    next_ += n;
    *batch = {inputs_.data(), labels_.data(), nullptr, static_cast<int>(n),
              targets_.empty() ? nullptr : targets_.data()};
    return true;
  }
  const absl::Status& status() const { return status_; }

 private:
  // Reads sample i of the minibatch.
  absl::Status Read(int64_t i) {
    const int64_t index = (next_ + i) * data_.size() / count_;
    if (targets_.empty()) {
      labels_[i] = data_.label(index);
    } else {
      data_.CopyTargets(index, targets_.data() + i * data_.target().reals);
    }
    return data_.ReadInput(index, std::nullopt, inputs_.data() + i * data_.input_shape().size()).status();
  }

  const Dataset& data_;
  SampleThreads& threads_;
  const int64_t count_;
  const int64_t batch_size_;
  std::vector<float> inputs_;
  std::vector<int32_t> labels_;
  std::vector<float> targets_;
  int64_t next_ = 0;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<Score> ScoreTestSet(const DataSets& data, int64_t batch_size, int threads,
                                   absl::Span<const float> weights, Trainable* model,
                                   absl::FunctionRef<bool()> is_stopped) {
  SampleThreads readers(threads);
  SampleReader statistics(&data.train, SamplesForStatistics(data.train, batch_size), batch_size, &readers);
  model->EstimateStatistics(weights, [&](Minibatch* batch) { return statistics.Next(batch); });
  RETURN_IF_ERROR(statistics.status());
  SampleReader test(&data.test, data.test.size(), batch_size, &readers);
  Score total;
  Minibatch batch;
  while (!is_stopped() && test.Next(&batch)) total += model->Evaluate(weights, batch);
  RETURN_IF_ERROR(test.status());
  return total;
}

}  // namespace catchment
