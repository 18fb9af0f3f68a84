#include "kernels/cuda/cuda_backend.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace catchment {
namespace {

struct CudaActivation final : Activation {
  CatchmentCudaTensor* tensor = nullptr;
};

CatchmentCudaTensor* TensorOf(Activation* activation) {
  return static_cast<CudaActivation*>(activation)->tensor;
}

CatchmentCudaShape ShapeOf(const SampleShape& shape) {
  const int kind = shape.is_vector() ? 1 : shape.is_sequence() ? 2 : 0;
  return {shape.channels, shape.height, shape.width, kind};
}

CatchmentCudaLayer LayerOf(const KernelSpec& spec) {
  const LayerShape& shape = spec.layer;
  CatchmentCudaLayer layer = {};
  layer.kind = shape.kind;
  layer.index = spec.index;
  layer.batch_size = spec.batch_size;
  layer.relu = spec.relu;
  layer.input_gradient = spec.input_gradient;
  layer.bias = shape.bias;
  layer.may_round_output = spec.may_round_output;
  layer.input = ShapeOf(shape.input);
  layer.output = ShapeOf(shape.output);
  layer.kernel_size = shape.kernel_size;
  layer.stride = shape.stride;
  layer.padding = shape.padding;
  layer.groups = shape.groups;
  layer.ghost_batch = shape.ghost_batch;
  layer.rate = shape.rate;
  layer.epsilon = shape.epsilon;
  layer.seed = spec.seed;
  return layer;
}

int LossKindOf(LossSpec::Kind kind) {
  switch (kind) {
    case LossSpec::Kind::kSoftmaxCrossEntropy:
      return 0;
    case LossSpec::Kind::kSigmoidCrossEntropy:
      return 1;
    case LossSpec::Kind::kMeanSquaredError:
      return 2;
  }
  return -1;
}

CatchmentCudaPass PassOf(const Pass& pass) {
  const int mode = pass.mode == PassMode::kTraining ? 0 : pass.mode == PassMode::kGathering ? 1 : 2;
  return {mode, pass.samples, pass.sample_ids, pass.statistics};
}

// The plugin with its backend. It must destroy the nodes that it has created, so each node keeps a reference
// to it.
struct Session {
  const CatchmentCudaPlugin& plugin;
  CatchmentCudaBackend* backend;

  Session(const CatchmentCudaPlugin& plugin, CatchmentCudaBackend* backend)
      : plugin(plugin), backend(backend) {}
  Session(const Session&) = delete;
  ~Session() { plugin.destroy(backend); }
  std::string error() const { return plugin.error(backend); }
  void Check(int32_t result) const { CHECK_EQ(result, 0) << "the CUDA device failed: " << error(); }
};

struct Node {
  std::shared_ptr<Session> session;
  CatchmentCudaNode* node;

  Node(std::shared_ptr<Session> session, CatchmentCudaNode* node) : session(std::move(session)), node(node) {}
  Node(const Node&) = delete;
  ~Node() { session->plugin.destroy_node(node); }

  const CatchmentCudaPlugin& plugin() const { return session->plugin; }
  CatchmentCudaBackend* backend() const { return session->backend; }
};

class CudaSource final : public Source {
 public:
  CudaSource(std::shared_ptr<Session> session, CatchmentCudaNode* node) : node_(std::move(session), node) {
    output_.tensor = node_.plugin().output(node, 0);
  }
  Activation* output() override { return &output_; }
  void Load(const float* inputs, int samples) override {
    node_.session->Check(node_.plugin().load(node_.backend(), node_.node, inputs, samples));
  }

 private:
  Node node_;
  CudaActivation output_;
};

class CudaKernel final : public Kernel {
 public:
  CudaKernel(std::shared_ptr<Session> session, CatchmentCudaNode* node) : node_(std::move(session), node) {
    output_.tensor = node_.plugin().output(node, 0);
  }
  Activation* output() override { return &output_; }

  void Forward(const float* parameters, const Pass& pass) override {
    const CatchmentCudaPass cuda_pass = PassOf(pass);
    node_.session->Check(node_.plugin().forward(node_.backend(), node_.node, parameters, &cuda_pass));
  }

  // The parameters are still on the device.
  void Backward(const float*, const Pass& pass, float* gradient) override {
    const CatchmentCudaPass cuda_pass = PassOf(pass);
    node_.session->Check(node_.plugin().backward(node_.backend(), node_.node, &cuda_pass, gradient));
  }

  void AwaitGradient(float* gradient) override {
    node_.session->Check(node_.plugin().await_gradient(node_.backend(), node_.node, gradient));
  }

 private:
  Node node_;
  CudaActivation output_;
};

class CudaFork final : public Fork {
 public:
  CudaFork(std::shared_ptr<Session> session, CatchmentCudaNode* node, int readers)
      : node_(std::move(session), node), views_(readers) {
    for (int i = 0; i < readers; ++i) views_[i].tensor = node_.plugin().output(node, i);
  }
  Activation* view(int reader) override { return &views_[reader]; }
  void SumGradients() override {
    node_.session->Check(node_.plugin().sum_gradients(node_.backend(), node_.node));
  }

 private:
  Node node_;
  std::vector<CudaActivation> views_;
};

class CudaLoss final : public Loss {
 public:
  CudaLoss(std::shared_ptr<Session> session, CatchmentCudaNode* node) : node_(std::move(session), node) {}
  void ScaleGradient(float scale) override { node_.plugin().scale_gradient(node_.node, scale); }
  void Run(const int32_t* labels, const float* targets, int samples, bool gradient) override {
    samples_ = samples;
    node_.session->Check(
        node_.plugin().run_loss(node_.backend(), node_.node, labels, targets, samples, gradient ? 1 : 0));
  }
  Score AwaitScore() override {
    CatchmentCudaScore score;
    node_.session->Check(node_.plugin().await_score(node_.backend(), node_.node, &score));
    return {.loss_sum = score.loss_sum, .correct = score.correct, .samples = samples_};
  }

 private:
  Node node_;
  int samples_ = 0;  // of the last run
};

class CudaPinning final : public Pinning {
 public:
  CudaPinning(std::shared_ptr<Session> session, void* memory)
      : session_(std::move(session)), memory_(memory) {}
  ~CudaPinning() override { session_->plugin.unpin(session_->backend, memory_); }

 private:
  const std::shared_ptr<Session> session_;
  void* const memory_;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::shared_ptr<Session> session, CatchmentCudaPrecision precision)
      : session_(std::move(session)), precision_(precision) {}

  std::string Describe() const override { return plugin().describe(session_->backend); }
  void Enter() override { session_->Check(session_->plugin.enter(session_->backend)); }
  bool runs_ahead() const override { return true; }

  std::unique_ptr<Pinning> Pin(absl::Span<const float> values) override {
    auto* const memory = const_cast<float*>(values.data());
    if (values.empty() || plugin().pin(session_->backend, memory, values.size() * sizeof(float)) != 0)
      return nullptr;
    return std::make_unique<CudaPinning>(session_, memory);
  }

  bool wants_loss_scale() const override { return precision_ == CATCHMENT_CUDA_FLOAT16; }

  absl::StatusOr<std::unique_ptr<Source>> CreateSource(const SampleShape& shape, int batch_size) override {
    const CatchmentCudaShape cuda_shape = ShapeOf(shape);
    CatchmentCudaNode* const node = plugin().create_source(session_->backend, &cuda_shape, batch_size);
    if (node == nullptr) return Error("input");
    return std::make_unique<CudaSource>(session_, node);
  }

  absl::StatusOr<std::unique_ptr<Kernel>> CreateKernel(const KernelSpec& spec,
                                                       absl::Span<Activation* const> inputs) override {
    std::vector<CatchmentCudaTensor*> tensors;
    for (Activation* input : inputs) tensors.push_back(TensorOf(input));
    const CatchmentCudaLayer layer = LayerOf(spec);
    CatchmentCudaNode* const node = plugin().create_layer(session_->backend, &layer, tensors.data(),
                                                          static_cast<int32_t>(tensors.size()));
    if (node == nullptr) return Error(absl::StrCat("layer ", spec.layer.name));
    return std::make_unique<CudaKernel>(session_, node);
  }

  absl::StatusOr<std::unique_ptr<Fork>> CreateFork(Activation* activation, int readers) override {
    CatchmentCudaNode* const node = plugin().create_fork(session_->backend, TensorOf(activation), readers);
    if (node == nullptr) return Error("fork");
    return std::make_unique<CudaFork>(session_, node, readers);
  }

  absl::StatusOr<std::unique_ptr<Loss>> CreateLoss(const LossSpec& spec, Activation* outputs) override {
    const CatchmentCudaLossSpec loss = {LossKindOf(spec.kind), spec.num_outputs, spec.batch_size,
                                        spec.label_smoothing};
    CatchmentCudaNode* const node = plugin().create_loss(session_->backend, &loss, TensorOf(outputs));
    if (node == nullptr) return Error("loss");
    return std::make_unique<CudaLoss>(session_, node);
  }

 private:
  const CatchmentCudaPlugin& plugin() const { return session_->plugin; }
  absl::Status Error(const std::string& what) const {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": ", session_->error()));
  }

  std::shared_ptr<Session> session_;
  const CatchmentCudaPrecision precision_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CatchmentCudaPlugin& plugin,
                                                         const CudaOptions& options) {
  if (plugin.create == nullptr) {
    return absl::FailedPreconditionError("the CUDA plugin was built without the CUDA Toolkit");
  }
  char why[512] = "";
  CatchmentCudaBackend* const backend = plugin.create(options.index, options.precision, why, sizeof why);
  if (backend == nullptr)
    return absl::UnavailableError(absl::StrCat("CUDA device ", options.index, ": ", why));
  return std::make_unique<CudaBackend>(std::make_shared<Session>(plugin, backend), options.precision);
}

}  // namespace catchment
