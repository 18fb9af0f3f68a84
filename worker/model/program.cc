#include "worker/model/program.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/trace/recorder.h"

namespace catchment {
namespace {

constexpr int kLoss = -2;  // a reader that is not a layer

// Assigns layers to kernels. Some layers have no kernel of their own, because they only view another one's
// output (flatten), or because the previous kernel includes their work (relu).
class Plan {
 public:
  explicit Plan(const std::vector<LayerShape>& layers) : layers_(layers), source_(layers.size()) {
    for (int i = 0; i < size(); ++i) source_[i] = layers_[i].kind == LayerKind::kFlatten ? Input(i, 0) : i;
    FindReaders();
    for (int i = 0; i < size(); ++i) {
      if (layers_[i].kind != LayerKind::kRelu || Input(i, 0) == LayerShape::kData) continue;
      const int before = Input(i, 0);
      if (!FusesRelu(layers_[before].kind) || readers_[before].size() > 1 || DoesRelu(before)) continue;
      source_[i] = before;
    }
    FindReaders();
    for (int i = 0; i < size(); ++i) {
      has_gradient_.push_back(!layers_[i].tensors.empty());
      for (int j = 0; j < InputCount(i); ++j) has_gradient_[i] = has_gradient_[i] || HasGradient(Input(i, j));
    }
  }

  int size() const { return static_cast<int>(layers_.size()); }
  bool HasKernel(int i) const { return source_[i] == i; }
  int InputCount(int i) const { return static_cast<int>(layers_[i].inputs.size()); }
  // Returns the layer whose kernel computes the j-th input of layer i; kData for the samples.
  int Input(int i, int j) const { return Source(layers_[i].inputs[j]); }
  int Last() const { return Source(size() - 1); }

  // Returns true if a layer's output depends on parameters, so that its gradient is needed.
  bool HasGradient(int i) const { return i != LayerShape::kData && has_gradient_[i]; }
  bool NeedsInputGradient(int i) const {
    for (int j = 0; j < InputCount(i); ++j) {
      if (HasGradient(Input(i, j))) return true;
    }
    return false;
  }

  int ReaderCount(int i) const { return static_cast<int>(readers_[i].size()); }
  // Returns the index of the j-th input of layer i among its source's readers.
  int ReaderIndex(int i, int j) const {
    const auto& readers = readers_[Input(i, j)];
    return static_cast<int>(std::find(readers.begin(), readers.end(), std::pair(i, j)) - readers.begin());
  }

  bool DoesRelu(int i) const {
    for (int j = i + 1; j < size(); ++j) {
      if (layers_[j].kind == LayerKind::kRelu && Source(j) == i) return true;
    }
    return false;
  }

  bool MayRoundOutput(int i) const {
    return !readers_[i].empty() && std::ranges::all_of(readers_[i], [this](const auto& reader) {
      const int layer = reader.first;
      return layer != kLoss && IsRounding(layers_[layer].kind) &&
             layers_[layer].input.kind == SampleKind::kImage;
    });
  }

  // Returns true if no other kernel reads the input in the backward pass, its own kernel included. (A relu's
  // kernel only tests which values are above 0, which relu and dropout do not change.)
  bool MayOverwriteInput(int i) const {
    const int input = Input(i, 0);
    const LayerKind kind = layers_[i].kind;
    if (input == LayerShape::kData || readers_[input].size() > 1) return false;
    const bool keeps_sign = kind == LayerKind::kRelu || kind == LayerKind::kDropout;
    if (!keeps_sign && kind != LayerKind::kResidual) return false;
    switch (layers_[input].kind) {
      case LayerKind::kConv2D:
      case LayerKind::kDense:
      case LayerKind::kBatchNorm:
      case LayerKind::kResidual:
        return keeps_sign || !DoesRelu(input);
      case LayerKind::kRelu:
      case LayerKind::kDropout:  // maybe of a relu, in its place
        return keeps_sign;
      case LayerKind::kMaxPool:
      case LayerKind::kAveragePool:
      case LayerKind::kGlobalAveragePool:
      case LayerKind::kLayerNorm:
        return true;
      default:
        return false;
    }
  }

 private:
  int Source(int i) const { return i == LayerShape::kData || source_[i] == i ? i : Source(source_[i]); }

  void FindReaders() {
    readers_.assign(layers_.size(), {});
    for (int i = 0; i < size(); ++i) {
      if (!HasKernel(i)) continue;
      for (int j = 0; j < InputCount(i); ++j) {
        if (Input(i, j) != LayerShape::kData) readers_[Input(i, j)].emplace_back(i, j);
      }
    }
    if (Last() != LayerShape::kData) readers_[Last()].emplace_back(kLoss, 0);
  }

  const std::vector<LayerShape>& layers_;
  // For each layer: itself if it has a kernel, otherwise the layer that it views (flatten) or that computes
  // it (relu).
  std::vector<int> source_;
  std::vector<std::vector<std::pair<int, int>>> readers_;  // of each kernel's output: layer, and which input
  std::vector<bool> has_gradient_;
};

// Returns the ranges of the flat vector that a kernel's parts read, of a layer whose parameters are at
// `layer`.
std::vector<Range> PartsOf(const Kernel& kernel, Range layer) {
  std::vector<Range> parts;
  for (int part = 0; part < kernel.parts(); ++part) {
    const bool last = part + 1 == kernel.parts();
    parts.push_back({layer.begin + kernel.part_begin(part),
                     last ? layer.end : layer.begin + kernel.part_begin(part + 1)});
  }
  return parts;
}

int64_t CountValues(const std::vector<TensorSpec>& tensors) {
  int64_t size = 0;
  for (const TensorSpec& tensor : tensors) size += tensor.size();
  return size;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Program>> Program::Create(const std::vector<LayerShape>& layers,
                                                         const Options& options, Backend* backend) {
  std::unique_ptr<Program> program(new Program);
  program->runs_ahead_ = backend->runs_ahead();
  ASSIGN_OR_RETURN(program->source_, backend->CreateSource(layers.front().input, options.loss.batch_size));

  const Plan plan(layers);
  std::vector<Step*> steps(layers.size());
  const auto output_of = [&](int layer, int reader) {
    if (layer == LayerShape::kData) return program->source_->output();
    return steps[layer]->fork ? steps[layer]->fork->view(reader) : steps[layer]->kernel->output();
  };

  program->steps_.reserve(layers.size());
  int64_t offset = 0, statistics = 0;
  for (int i = 0; i < plan.size(); ++i) {
    if (!plan.HasKernel(i)) continue;
    std::vector<Activation*> inputs;
    for (int j = 0; j < plan.InputCount(i); ++j) {
      const int input = plan.Input(i, j);
      inputs.push_back(output_of(input, input == LayerShape::kData ? 0 : plan.ReaderIndex(i, j)));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel,
                     backend->CreateKernel({.layer = layers[i],
                                            .index = i,
                                            .batch_size = options.loss.batch_size,
                                            .relu = plan.DoesRelu(i),
                                            .in_place = plan.MayOverwriteInput(i),
                                            .input_gradient = plan.NeedsInputGradient(i),
                                            .may_round_output = plan.MayRoundOutput(i),
                                            .seed = options.seed},
                                           inputs));
    const int64_t size = CountValues(layers[i].tensors);
    Step& step = program->steps_.emplace_back();
    step.name = absl::StrCat("backward ", layers[i].name);
    step.parameters = {offset, offset + size};
    step.statistics = CountStatistics(layers[i]) > 0 ? statistics : kNoStatistics;
    step.backward = plan.HasGradient(i);
    step.kernel = std::move(kernel);
    step.parts = PartsOf(*step.kernel, step.parameters);
    offset += size;
    statistics += CountStatistics(layers[i]);
    steps[i] = &step;
    // Without a gradient, readers may share the activation itself.
    if (plan.ReaderCount(i) < 2 || !step.backward) continue;
    ASSIGN_OR_RETURN(step.fork, backend->CreateFork(step.kernel->output(), plan.ReaderCount(i)));
  }

  ASSIGN_OR_RETURN(
      program->loss_,
      backend->CreateLoss(options.loss, output_of(plan.Last(), plan.ReaderCount(plan.Last()) - 1)));
  return program;
}

void Program::Forward(const float* weights, const float* inputs, Pass pass, PassObserver* observer) {
  source_->Load(inputs, pass.samples);
  float* const statistics = pass.statistics;
  for (Step& step : steps_) {
    const bool has_statistics = statistics != nullptr && step.statistics != kNoStatistics;
    pass.statistics = has_statistics ? statistics + step.statistics : nullptr;
    for (pass.part = 0; pass.part < std::ssize(step.parts); ++pass.part) {
      const Range part = step.parts[pass.part];
      if (part.size() > 0) observer->BeforeForward(part);
      step.kernel->Forward(weights + step.parameters.begin, pass);
    }
  }
}

void Program::Backward(const float* weights, Pass pass, float* gradient, PassObserver* observer) {
  const auto finish = [&](const Step& step, Range part) {
    step.kernel->AwaitGradient(gradient + step.parameters.begin);
    if (part.size() > 0) observer->AfterBackward(part);
  };
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (!step->backward) continue;
    std::optional<TraceScope> scope;
    if (!runs_ahead_) scope.emplace(step->name);
    if (step->fork) step->fork->SumGradients();
    for (pass.part = static_cast<int>(std::ssize(step->parts)); pass.part-- > 0;) {
      step->kernel->Backward(weights + step->parameters.begin, pass, gradient + step->parameters.begin);
      if (!runs_ahead_) finish(*step, step->parts[pass.part]);
    }
  }
  if (!runs_ahead_) return;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (!step->backward) continue;
    const TraceScope scope(step->name);
    finish(*step, step->parameters);
  }
}

}  // namespace catchment
