#include "worker/model/program.h"

namespace catchment {
namespace {

bool TakesRelu(const std::vector<LayerShape>& layers, size_t i) {
  const bool able = layers[i].kind == LayerKind::kConv2d || layers[i].kind == LayerKind::kDense;
  return able && i + 1 < layers.size() && layers[i + 1].kind == LayerKind::kRelu;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Program>> Program::Create(const std::vector<LayerShape>& layers,
                                                         const Options& options, Backend* backend) {
  std::unique_ptr<Program> program(new Program);
  absl::StatusOr<std::unique_ptr<Source>> source =
      backend->CreateSource(layers.front().input, options.batch_size);
  if (!source.ok()) return source.status();
  program->source_ = *std::move(source);
  Activation* last = program->source_->output();

  int64_t offset = 0;
  bool relu_done = false;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].kind == LayerKind::kFlatten || relu_done) {
      relu_done = false;
      continue;
    }
    relu_done = TakesRelu(layers, i);
    int64_t size = 0;
    for (const TensorSpec& tensor : layers[i].tensors) size += tensor.size();
    absl::StatusOr<std::unique_ptr<Kernel>> kernel = backend->CreateKernel({.layer = layers[i],
                                                                            .index = static_cast<int>(i),
                                                                            .batch_size = options.batch_size,
                                                                            .relu = relu_done,
                                                                            .input_gradient = offset > 0,
                                                                            .seed = options.seed},
                                                                           last);
    if (!kernel.ok()) return kernel.status();
    last = (*kernel)->output();
    program->steps_.push_back({*std::move(kernel), {offset, offset + size}, offset + size > 0});
    offset += size;
  }

  absl::StatusOr<std::unique_ptr<Loss>> loss =
      backend->CreateLoss(options.num_classes, options.batch_size, last);
  if (!loss.ok()) return loss.status();
  program->loss_ = *std::move(loss);
  return program;
}

void Program::Forward(const float* weights, const float* inputs, const Pass& pass, PassObserver* observer) {
  source_->Load(inputs, pass.samples);
  for (Step& step : steps_) {
    if (step.parameters.size() > 0) observer->BeforeForward(step.parameters);
    step.kernel->Forward(weights + step.parameters.begin, pass);
  }
}

void Program::Backward(const float* weights, const Pass& pass, float* gradient, PassObserver* observer) {
  for (auto step = steps_.rbegin(); step != steps_.rend() && step->backward; ++step) {
    step->kernel->Backward(weights + step->parameters.begin, pass, gradient + step->parameters.begin);
    if (step->parameters.size() > 0) observer->AfterBackward(step->parameters);
  }
}

}  // namespace catchment
