#include "worker/model/synthetic_model.h"

#include <cmath>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "glog/logging.h"

namespace catchment {
namespace {

constexpr double kForwardShare = 1.0 / 3;
constexpr double kBackwardShare = 2.0 / 3;
constexpr float kLargestGradient = 0.001f;
// The stream of the job's seed for step times. Dropout and the order of samples use other streams.
constexpr uint64_t kTimeStream = 0x74696d65;

// Returns the gradient of parameter i; never 0, which a fresh buffer holds.
float GradientValue(int64_t i) {
  const auto bits = static_cast<int32_t>(Scatter(static_cast<uint64_t>(i)) >> 40);
  return kLargestGradient * static_cast<float>(2 * bits + 1 - (1 << 24)) * 0x1p-24f;
}

void Fill(Range range, float* gradient) {
  if (gradient[range.begin] == GradientValue(range.begin) &&
      gradient[range.end - 1] == GradientValue(range.end - 1)) {
    return;
  }
  for (int64_t i = range.begin; i < range.end; ++i) gradient[i] = GradientValue(i);
}

double SecondsIn(const Clock& clock, absl::FunctionRef<void()> call) {
  const double start = clock.Now();
  call();
  return clock.Now() - start;
}

}  // namespace

SyntheticModel::SyntheticModel(const v1::SyntheticModel& config, const std::vector<LayerShape>& layers,
                               uint64_t seed, std::unique_ptr<Timer> timer)
    : config_(config),
      tensors_(ListTensors(layers)),
      layers_(LayerRanges(layers)),
      seed_(Derive(seed, kTimeStream)),
      timer_(std::move(timer)) {}

std::string SyntheticModel::device() const {
  return absl::StrCat("synthetic: ", config_.step_ms(), " ms a step");
}

Score SyntheticModel::Train(absl::Span<const float> weights, const Minibatch& batch,
                            absl::Span<float> gradient, PassObserver* observer) {
  CHECK_EQ(static_cast<int64_t>(weights.size()), layers_.back().end);
  CHECK_EQ(gradient.size(), weights.size());
  const double seconds_per_layer = StepSeconds(batch) / static_cast<double>(layers_.size());
  double due = timer_->Now();
  for (const Range& layer : layers_) {
    due += SecondsIn(*timer_, [&] { observer->BeforeForward(layer); });
    due += kForwardShare * seconds_per_layer;
    timer_->SleepUntil(due);
  }
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    due += kBackwardShare * seconds_per_layer;
    timer_->SleepUntil(due);
    Fill(*layer, gradient.data());
    due += SecondsIn(*timer_, [&] { observer->AfterBackward(*layer); });
  }
  Score score;
  score.samples = batch.samples;
  return score;
}

double SyntheticModel::StepSeconds(const Minibatch& batch) const {
  const double mean = config_.step_ms() / 1000;
  const double sigma = config_.spread();
  if (sigma == 0) return mean;
  CHECK(batch.samples > 0 && batch.sample_ids != nullptr);
  const double z = Random(Derive(seed_, batch.sample_ids[0])).Normal();
  return mean * std::exp(sigma * z - sigma * sigma / 2);
}

}  // namespace catchment
