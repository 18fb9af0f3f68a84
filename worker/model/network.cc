#include "worker/model/network.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "worker/model/program.h"

namespace catchment {
namespace {

Pass PassOf(const Minibatch& batch, bool training) {
  return {.training = training, .samples = batch.samples, .sample_ids = batch.sample_ids};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> Network::Create(const v1::Model& model, const SampleShape& input,
                                                         int num_classes, const Options& options,
                                                         std::unique_ptr<Backend> backend) {
  if (options.max_batch_size < 1) return absl::InvalidArgumentError("batch_size: must be at least 1");
  absl::StatusOr<std::vector<LayerShape>> layers = InferShapes(model, input, num_classes);
  if (!layers.ok()) return layers.status();
  std::unique_ptr<Network> network(new Network(*std::move(layers), num_classes, options, std::move(backend)));
  network->backend_->Enter();
  absl::StatusOr<std::unique_ptr<Program>> program = network->MakeProgram(options.max_batch_size);
  if (!program.ok()) return program.status();
  network->programs_[options.max_batch_size] = *std::move(program);
  return network;
}

Network::Network(std::vector<LayerShape> layers, int num_classes, const Options& options,
                 std::unique_ptr<Backend> backend)
    : layers_(std::move(layers)),
      tensors_(ListTensors(layers_)),
      num_parameters_(CountParameters(layers_)),
      num_classes_(num_classes),
      options_(options),
      backend_(std::move(backend)) {}

Network::~Network() = default;

absl::StatusOr<std::unique_ptr<Program>> Network::MakeProgram(int batch_size) {
  return Program::Create(layers_,
                         {.batch_size = batch_size, .num_classes = num_classes_, .seed = options_.seed},
                         backend_.get());
}

Program& Network::ProgramFor(const Minibatch& batch) {
  CHECK(batch.samples >= 1 && batch.samples <= options_.max_batch_size) << "a minibatch of " << batch.samples;
  backend_->Enter();
  const auto power = static_cast<int>(std::bit_ceil(static_cast<unsigned>(batch.samples)));
  const int size = std::min(power, options_.max_batch_size);
  const auto found = programs_.find(size);
  if (found != programs_.end()) return *found->second;
  absl::StatusOr<std::unique_ptr<Program>> program = MakeProgram(size);
  if (program.ok()) return *(programs_[size] = *std::move(program));
  // What could be made for the full size runs smaller batches too, only slower.
  LOG_FIRST_N(WARNING, 1) << "batches of " << size << ": " << program.status().message();
  return *programs_.rbegin()->second;
}

Score Network::Train(absl::Span<const float> weights, const Minibatch& batch, absl::Span<float> gradient) {
  NoPassObserver nobody;
  return Train(weights, batch, gradient, &nobody);
}

Score Network::Train(absl::Span<const float> weights, const Minibatch& batch, absl::Span<float> gradient,
                     PassObserver* observer) {
  CHECK_EQ(static_cast<int64_t>(weights.size()), num_parameters_);
  CHECK_EQ(static_cast<int64_t>(gradient.size()), num_parameters_);
  Program& program = ProgramFor(batch);
  const Pass pass = PassOf(batch, true);
  program.Forward(weights.data(), batch.inputs, pass, observer);
  const Score score = program.Evaluate(batch.labels, batch.samples, true);
  program.Backward(weights.data(), pass, gradient.data(), observer);
  return score;
}

Score Network::Evaluate(absl::Span<const float> weights, const Minibatch& batch) {
  CHECK_EQ(static_cast<int64_t>(weights.size()), num_parameters_);
  Program& program = ProgramFor(batch);
  NoPassObserver nobody;
  program.Forward(weights.data(), batch.inputs, PassOf(batch, false), &nobody);
  return program.Evaluate(batch.labels, batch.samples, false);
}

}  // namespace catchment
