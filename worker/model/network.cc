#include "worker/model/network.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/trace/recorder.h"
#include "glog/logging.h"
#include "worker/model/program.h"

namespace catchment {
namespace {

LossSpec LossOf(const v1::Loss& loss, const LayerShape& last) {
  using Kind = LossSpec::Kind;
  LossSpec spec;
  spec.num_outputs = static_cast<int>(last.output.size());
  spec.label_smoothing = loss.label_smoothing();
  if (loss.kind() == v1::Loss::SIGMOID_CROSS_ENTROPY) spec.kind = Kind::kSigmoidCrossEntropy;
  if (loss.kind() == v1::Loss::MEAN_SQUARED_ERROR) spec.kind = Kind::kMeanSquaredError;
  return spec;
}

int64_t CountStatistics(const std::vector<LayerShape>& layers) {
  int64_t count = 0;
  for (const LayerShape& layer : layers) count += CountStatistics(layer);
  return count;
}

// Means and variances of samples that come in minibatches, of each layer's channels.
class StatisticsSum {
 public:
  explicit StatisticsSum(const std::vector<LayerShape>& layers)
      : layers_(layers), sums_(CountStatistics(layers)) {}

  // `statistics`: those of a minibatch.
  void Add(const std::vector<float>& statistics, int samples) {
    samples_ += samples;
    ForEachChannel([&](int64_t mean, int64_t variance) {
      const double m = statistics[mean];
      sums_[mean] += samples * m;
      sums_[variance] += samples * (statistics[variance] + m * m);
    });
  }

  void Write(std::vector<float>* statistics) const {
    ForEachChannel([&](int64_t mean, int64_t variance) {
      const double m = sums_[mean] / samples_;
      (*statistics)[mean] = static_cast<float>(m);
      (*statistics)[variance] = static_cast<float>(std::max(0.0, sums_[variance] / samples_ - m * m));
    });
  }

 private:
  // Calls f(index of the mean, index of the variance).
  template <typename F>
  void ForEachChannel(F f) const {
    int64_t begin = 0;
    for (const LayerShape& layer : layers_) {
      const int64_t channels = CountStatistics(layer) / 2;
      for (int64_t c = 0; c < channels; ++c) f(begin + c, begin + channels + c);
      begin += 2 * channels;
    }
  }

  const std::vector<LayerShape>& layers_;
  std::vector<double> sums_;  // of values and of their squares
  double samples_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> Network::Create(const v1::Model& model, const SampleShape& input,
                                                         const TargetShape& target, const Options& options,
                                                         std::unique_ptr<Backend> backend) {
  if (options.max_batch_size < 1) return absl::InvalidArgumentError("batch_size: must be at least 1");
  ASSIGN_OR_RETURN(std::vector<LayerShape> layers, InferShapes(model, input, target));
  std::unique_ptr<Network> network(new Network(std::move(layers), model.loss(), options, std::move(backend)));
  network->backend_->Enter();
  for (const int size : {options.usual_batch_size, options.max_batch_size}) {
    if (size == 0 || network->programs_.contains(size)) continue;
    ASSIGN_OR_RETURN(network->programs_[size], network->MakeProgram(size));
  }
  return network;
}

Network::Network(std::vector<LayerShape> layers, const v1::Loss& loss, const Options& options,
                 std::unique_ptr<Backend> backend)
    : layers_(std::move(layers)),
      tensors_(ListTensors(layers_)),
      num_parameters_(CountParameters(layers_)),
      loss_(LossOf(loss, layers_.back())),
      options_(options),
      backend_(std::move(backend)),
      statistics_(CountStatistics(layers_)),
      has_statistics_(statistics_.empty()) {
  if (backend_->wants_loss_scale()) loss_scale_.emplace(options.loss_scale, options.loss_scale_period);
}

Network::~Network() = default;

absl::StatusOr<std::unique_ptr<Program>> Network::MakeProgram(int batch_size) {
  Program::Options options = {.loss = loss_, .seed = options_.seed};
  options.loss.batch_size = batch_size;
  return Program::Create(layers_, options, backend_.get());
}

Program& Network::ProgramFor(const Minibatch& batch) {
  CHECK(batch.samples >= 1 && batch.samples <= options_.max_batch_size) << "a minibatch of " << batch.samples;
  backend_->Enter();
  const auto power = static_cast<int>(std::bit_ceil(static_cast<unsigned>(batch.samples)));
  const bool is_usual = batch.samples <= options_.usual_batch_size;
  const int size = std::min(power, is_usual ? options_.usual_batch_size : options_.max_batch_size);
  const auto found = programs_.find(size);
  if (found != programs_.end()) return *found->second;
  absl::StatusOr<std::unique_ptr<Program>> program = MakeProgram(size);
  if (program.ok()) return *(programs_[size] = *std::move(program));
  // The program for the full size also runs smaller batches, only slower.
  LOG_FIRST_N(WARNING, 1) << "batches of " << size << ": " << program.status().message();
  return *programs_.rbegin()->second;
}

Score Network::Train(absl::Span<const float> weights, const Minibatch& batch, absl::Span<float> gradient) {
  NoPassObserver ignore_progress;
  return Train(weights, batch, gradient, &ignore_progress);
}

Score Network::Train(absl::Span<const float> weights, const Minibatch& batch, absl::Span<float> gradient,
                     PassObserver* observer) {
  CHECK_EQ(static_cast<int64_t>(weights.size()), num_parameters_);
  CHECK_EQ(static_cast<int64_t>(gradient.size()), num_parameters_);
  return loss_scale_ ? TrainScaled(weights, batch, gradient, observer)
                     : TrainOnce(weights, batch, gradient, observer);
}

// A loss that is not finite is not the scale's fault, nor is an overflow at a scale of 1: that gradient goes
// out as it is, and the servers refuse it.
Score Network::TrainScaled(absl::Span<const float> weights, const Minibatch& batch,
                           absl::Span<float> gradient, PassObserver* observer) {
  for (bool first_pass = true;; first_pass = false) {
    const float scale = loss_scale_->value();
    Unscaling unscaling(scale, first_pass, gradient, observer);
    ProgramFor(batch).ScaleGradient(scale);
    const Score score = TrainOnce(weights, batch, gradient, &unscaling);
    if (unscaling.finite()) {
      loss_scale_->Good();
    } else if (std::isfinite(score.loss_sum) && loss_scale_->Overflow()) {
      LOG(INFO) << "a gradient overflowed; the loss scale is now " << loss_scale_->value();
      continue;
    }
    unscaling.TellAll();
    return score;
  }
}

Score Network::TrainOnce(absl::Span<const float> weights, const Minibatch& batch, absl::Span<float> gradient,
                         PassObserver* observer) {
  Program& program = ProgramFor(batch);
  const Pass pass = {.mode = PassMode::kTraining, .samples = batch.samples, .sample_ids = batch.sample_ids};
  {
    const TraceScope scope("forward");
    program.Forward(weights.data(), batch.inputs, pass, observer);
    program.Evaluate(batch.labels, batch.targets, batch.samples, true);
  }
  const TraceScope scope("backward");
  program.Backward(weights.data(), pass, gradient.data(), observer);
  return program.AwaitScore();
}

void Network::EstimateStatistics(absl::Span<const float> weights, absl::FunctionRef<bool(Minibatch*)> next) {
  if (statistics_.empty()) return;
  CHECK_EQ(static_cast<int64_t>(weights.size()), num_parameters_);
  StatisticsSum sum(layers_);
  NoPassObserver ignore_progress;
  Minibatch batch;
  has_statistics_ = false;
  while (next(&batch)) {
    ProgramFor(batch).Forward(
        weights.data(), batch.inputs,
        {.mode = PassMode::kGathering, .samples = batch.samples, .statistics = statistics_.data()},
        &ignore_progress);
    sum.Add(statistics_, batch.samples);
    has_statistics_ = true;
  }
  CHECK(has_statistics_) << "batch_norm cannot estimate its statistics without samples";
  sum.Write(&statistics_);
}

std::vector<Trainable::Statistic> Network::statistics() const {
  std::vector<Statistic> all;
  const float* next = statistics_.data();
  for (const LayerShape& layer : layers_) {
    if (CountStatistics(layer) == 0) continue;
    const auto channels = static_cast<size_t>(CountStatistics(layer) / 2);
    all.push_back({layer.name + ".running_mean", {next, channels}});
    all.push_back({layer.name + ".running_var", {next + channels, channels}});
    next += 2 * channels;
  }
  return all;
}

Score Network::Evaluate(absl::Span<const float> weights, const Minibatch& batch) {
  CHECK_EQ(static_cast<int64_t>(weights.size()), num_parameters_);
  CHECK(has_statistics_) << "batch_norm needs statistics to score; call EstimateStatistics first";
  Program& program = ProgramFor(batch);
  NoPassObserver ignore_progress;
  program.Forward(weights.data(), batch.inputs,
                  {.mode = PassMode::kScoring, .samples = batch.samples, .statistics = statistics_.data()},
                  &ignore_progress);
  program.Evaluate(batch.labels, batch.targets, batch.samples, false);
  return program.AwaitScore();
}

}  // namespace catchment
