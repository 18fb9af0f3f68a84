#include "simulation/simulated_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/rounding.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/base/timer.h"
#include "common/job/algorithm_facts.h"
#include "common/job/data_sources.h"
#include "common/job/job_layout.h"
#include "common/job/model_shapes.h"
#include "kernels/device/device.h"
#include "server/shard/shard_contents.h"
#include "worker/data/dataset.h"
#include "worker/data/sources/load_data.h"
#include "worker/loop/score_test_set.h"
#include "worker/model/network.h"
#include "worker/model/synthetic_model.h"

namespace catchment {
namespace {

// A stream of the job's seed; others are those of dropout, the samples' order and step times.
constexpr uint64_t kNoiseStream = 0x6e6f697365;

absl::StatusOr<std::vector<LayerShape>> LayersOf(const v1::Job& job) {
  const DataShape data = ShapeOf(job.data());
  return InferShapes(job.model(), data.input, data.target);
}

// The simulation models the time of a pass.
class NoTimer final : public Timer {
 public:
  double Now() const override { return 0; }
  void SleepUntil(double) override {}
};

// ------------------------------------------------------------------------------------- the job's own model

class TrainedModel final : public SimulatedModel {
 public:
  TrainedModel(const v1::Job& job, DataSets data, std::unique_ptr<Trainable> model, std::vector<Range> layers)
      : job_(job),
        data_(std::move(data)),
        model_(std::move(model)),
        layers_(std::move(layers)),
        augmentation_(job.data().augmentation(), data_.train.input_shape(), job.seed()),
        reader_(&data_.train, &augmentation_, EpochOrder(job.seed(), data_.train.size()), {}) {}

  const std::vector<TensorSpec>& tensors() const override { return model_->tensors(); }
  const std::vector<Range>& layers() const override { return layers_; }
  uint64_t train_samples() const override { return data_.train.size(); }
  uint64_t data_checksum() const override { return DataChecksum(data_); }
  std::string description() const override { return model_->device(); }

  absl::StatusOr<std::vector<float>> InitialWeights(const ParameterLayout& layout) const override {
    std::vector<float> weights;
    for (int s = 0; s < layout.num_shards(); ++s) {
      ASSIGN_OR_RETURN(const ShardContents contents, MakeContents(job_, layout, s, "", nullptr));
      weights.insert(weights.end(), contents.weights.begin(), contents.weights.end());
    }
    return weights;
  }

  absl::StatusOr<Score> Train(absl::Span<const float> weights, const BatchPlan& plan,
                              absl::Span<float> gradient) override {
    RETURN_IF_ERROR(reader_.Read(plan, &batch_));
    NoPassObserver observer;
    return model_->Train(weights,
                         {batch_.inputs.data(), batch_.labels.data(), batch_.sample_ids.data(),
                          static_cast<int>(batch_.samples), batch_.targets.data()},
                         gradient, &observer);
  }

  absl::StatusOr<v1::EvaluationReport> Evaluate(absl::Span<const float> weights) override {
    v1::EvaluationReport report;
    if (data_.test.size() == 0) return report;
    ASSIGN_OR_RETURN(const Score total, ScoreTestSet(data_, job_.batch_size(), /*threads=*/1, weights,
                                                     model_.get(), [] { return false; }));
    report.set_samples(total.samples);
    report.set_correct(total.correct);
    report.set_loss_sum(total.loss_sum);
    return report;
  }

 private:
  const v1::Job job_;
  const DataSets data_;
  const std::unique_ptr<Trainable> model_;
  const std::vector<Range> layers_;
  const Augmentation augmentation_;
  BatchReader reader_;
  LoadedBatch batch_;
};

absl::StatusOr<std::unique_ptr<Trainable>> MakeTrainable(const v1::Job& job, const Dataset& data,
                                                         const std::vector<LayerShape>& layers) {
  if (job.model().has_synthetic()) {
    return std::make_unique<SyntheticModel>(job.model().synthetic(), layers, job.seed(),
                                            std::make_unique<NoTimer>());
  }
  ASSIGN_OR_RETURN(DeviceChoice device,
                   ChooseDevice({.device = v1::CPU, .cuda_index = {}}, {.cpu = {1, /*deterministic=*/true}}));
  return Network::Create(job.model(), data.input_shape(), data.target(),
                         {.max_batch_size = static_cast<int>(LargestMinibatch(job)),
                          .usual_batch_size = static_cast<int>(job.batch_size()),
                          .seed = job.seed()},
                         std::move(device.backend));
}

// ------------------------------------------------------------------------------------------- the quadratic

// The blocks that a server has.
struct QuadraticBlocks {
  int64_t number;
  int64_t values;  // in each
};

// Each fragment of the algorithm has values.
QuadraticBlocks BlocksOf(const v1::Job& job, int64_t values_of_model, int servers) {
  constexpr int64_t kMaxBlocks = 64, kMinValues = 16, kFewPerServer = 64;
  const auto fragments = static_cast<int64_t>(CeilDivide(FragmentsOf(job), servers));
  const int64_t per_server = std::max(kFewPerServer, kMinValues * fragments);
  const int64_t block_size = int64_t{job.block_kib()} * 1024 / static_cast<int64_t>(sizeof(float));
  const int64_t shard = (values_of_model + servers - 1) / servers;
  const int64_t number = std::clamp<int64_t>((shard + block_size - 1) / block_size, 1, kMaxBlocks);
  return {number, static_cast<int64_t>(RoundUp(CeilDivide(per_server, number), kMinValues))};
}

class Quadratic final : public SimulatedModel {
 public:
  Quadratic(const QuadraticModel& model, const v1::Job& job, int servers, int64_t values_of_model,
            const std::vector<Range>& layers_of_model, uint64_t train_samples)
      : model_(model),
        blocks_(BlocksOf(job, values_of_model, servers)),
        seed_(Derive(job.seed(), kNoiseStream)),
        train_samples_(train_samples),
        test_samples_(TestSamplesOf(job)),
        curvatures_(servers * blocks_.number * blocks_.values) {
    const int64_t per_server = blocks_.number * blocks_.values;
    // An optimizer of whole tensors needs one for each fragment.
    const int64_t parts = CutsOf(job) == Cuts::kBetweenTensors ? CeilDivide(FragmentsOf(job), servers) : 1;
    for (int64_t part = 0; part < servers * parts; ++part) {
      const int64_t index = part % parts;
      const int64_t size = per_server * (index + 1) / parts - per_server * index / parts;
      tensors_.push_back({absl::StrCat("w", part), {size}});
    }
    const auto values = static_cast<int64_t>(curvatures_.size());
    wire_scale_ = static_cast<double>(values_of_model) / static_cast<double>(values);
    const auto scaled = [this](int64_t value) {
      return static_cast<int64_t>(std::llround(static_cast<double>(value) / wire_scale_));
    };
    for (const Range& layer : layers_of_model) {
      const Range range = {scaled(layer.begin), scaled(layer.end)};
      if (range.size() > 0) layers_.push_back(range);
    }
    for (int64_t i = 0; i < values; ++i) {
      // Each server has small and large curvatures.
      const int64_t rank = i % per_server * servers + i / per_server;
      const double exponent = static_cast<double>(rank) / static_cast<double>(values - 1) - 1;
      curvatures_[i] = static_cast<float>(std::pow(model.condition, exponent));
    }
    initial_loss_ = LossAt(std::vector<float>(values, 1.0f));
  }

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  const std::vector<Range>& layers() const override { return layers_; }
  uint64_t train_samples() const override { return train_samples_; }
  double wire_scale() const override { return wire_scale_; }
  std::optional<int64_t> block_size() const override { return blocks_.values; }
  std::string description() const override {
    return absl::StrCat("a quadratic of condition ", Short(model_.condition), ", noise ",
                        Short(model_.noise));
  }
  absl::StatusOr<std::vector<float>> InitialWeights(const ParameterLayout&) const override {
    return std::vector<float>(curvatures_.size(), 1.0f);
  }

  absl::StatusOr<Score> Train(absl::Span<const float> weights, const BatchPlan& plan,
                              absl::Span<float> gradient) override {
    Score score;
    for (const Span& span : plan.spans) score.samples += static_cast<int64_t>(span.end - span.begin);
    const Span& first = plan.spans.front();
    Random random(Derive(Derive(seed_, first.epoch), first.begin));
    for (size_t i = 0; i < curvatures_.size(); ++i) {
      gradient[i] = curvatures_[i] * weights[i];
      if (model_.noise > 0) gradient[i] += static_cast<float>(model_.noise * random.Normal());
    }
    score.loss_sum = LossAt(weights) * static_cast<double>(score.samples);
    return score;
  }

  absl::StatusOr<v1::EvaluationReport> Evaluate(absl::Span<const float> weights) override {
    const double loss = LossAt(weights);
    v1::EvaluationReport report;
    report.set_samples(static_cast<uint64_t>(test_samples_));
    report.set_loss_sum(test_samples_ * loss);
    const double gone = std::isfinite(loss) ? std::clamp(1 - loss / initial_loss_, 0.0, 1.0) : 0;
    report.set_correct(static_cast<uint64_t>(std::llround(test_samples_ * gone)));
    return report;
  }

 private:
  double LossAt(absl::Span<const float> weights) const {
    double loss = 0;
    for (size_t i = 0; i < curvatures_.size(); ++i) loss += 0.5 * curvatures_[i] * weights[i] * weights[i];
    return loss;
  }

  // Returns the number of test samples that the job states; else a million, for a fine accuracy.
  static double TestSamplesOf(const v1::Job& job) {
    const DataShape data = ShapeOf(job.data());
    return data.counted || data.test_samples == 0 ? 1e6 : static_cast<double>(data.test_samples);
  }

  const QuadraticModel model_;
  const QuadraticBlocks blocks_;
  const uint64_t seed_;
  const uint64_t train_samples_;
  const double test_samples_;
  std::vector<TensorSpec> tensors_;
  std::vector<Range> layers_;
  std::vector<float> curvatures_;
  double wire_scale_ = 1;
  double initial_loss_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SimulatedModel>> MakeTrainedModel(const v1::Job& job) {
  if (job.model().has_external()) {
    return absl::InvalidArgumentError(
        "model.external: the gradients of a program cannot be "
        "simulated; use --gradient=quadratic:CONDITION:NOISE");
  }
  ASSIGN_OR_RETURN(std::vector<LayerShape> layers, LayersOf(job));
  ASSIGN_OR_RETURN(DataSets data, LoadData(job, DataPathsFromEnvironment()));
  ASSIGN_OR_RETURN(std::unique_ptr<Trainable> model, MakeTrainable(job, data.train, layers));
  return std::make_unique<TrainedModel>(job, std::move(data), std::move(model), LayerRanges(layers));
}

int64_t QuadraticValues(const v1::Job& job, int64_t values_of_model, int servers) {
  const QuadraticBlocks blocks = BlocksOf(job, values_of_model, servers);
  return servers * blocks.number * blocks.values;
}

absl::StatusOr<std::unique_ptr<SimulatedModel>> MakeQuadratic(const QuadraticModel& quadratic,
                                                              const v1::Job& job, int servers) {
  ASSIGN_OR_RETURN(const std::vector<LayerShape> layers, LayersOf(job));
  int64_t values = 0;
  for (const TensorSpec& tensor : ListTensors(layers)) values += tensor.size();
  auto samples = static_cast<uint64_t>(ShapeOf(job.data()).train_samples);
  if (samples == 0) samples = static_cast<uint64_t>(quadratic.epoch_samples);
  if (samples == 0) {
    ASSIGN_OR_RETURN(const DataSets data, LoadData(job, DataPathsFromEnvironment()));
    samples = data.train.size();
  }
  return std::make_unique<Quadratic>(quadratic, job, servers, values, LayerRanges(layers), samples);
}

}  // namespace catchment
