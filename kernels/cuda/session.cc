#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/node.h"
#include "kernels/cuda/plugin.h"

struct CatchmentCudaBackend {
  catchment::cuda::Device device;
  std::string description;
  std::string error;
};

namespace catchment::cuda {
namespace {

// Calls f and returns 0, or stores the exception's message and returns 1.
template <typename F>
int32_t Try(CatchmentCudaBackend* backend, F f) {
  try {
    f();
    return 0;
  } catch (const std::exception& error) {
    backend->error = error.what();
    return 1;
  }
}

template <typename F>
Node* TryMake(CatchmentCudaBackend* backend, F f) {
  std::unique_ptr<Node> node;
  Try(backend, [&] { node = f(); });
  return node.release();
}

// A node with its inputs, which it sees in the shape that it needs: a sequence can be read as a vector
// directly, an image is flattened first.
template <typename T>
struct Reader : Node {
  std::vector<std::unique_ptr<Flattening>> flattenings;  // of the images that are read as vectors
  std::unique_ptr<T> node;

  // Returns the input, or its flattened form.
  Tensor* Flat(Device* device, Tensor* input, const CatchmentCudaShape& shape) {
    if (!input->is_image() || input->area() == 1 || shape.kind == 0) return input;
    flattenings.push_back(std::make_unique<Flattening>(device, *input));
    return flattenings.back()->output.tensor();
  }

  void Flatten() {
    for (const auto& flattening : flattenings) flattening->Forward();
  }
  void FlattenBackward() {
    for (const auto& flattening : flattenings) flattening->Backward();
  }
};

Tensor WithShape(Tensor tensor, const CatchmentCudaShape& shape) {
  tensor.shape = shape;
  return tensor;
}

using LayerNode = Reader<Layer>;
using LossNode = Reader<Loss>;

std::unique_ptr<Layer> MakeLayer(Device* device, const CatchmentCudaLayer& spec, const Tensor& input,
                                 Tensor* first, Tensor* second) {
  switch (spec.kind) {
    case CATCHMENT_CUDA_CONV2D:
      return MakeConv2d(device, spec, input);
    case CATCHMENT_CUDA_DENSE:
      return MakeDense(device, spec, input);
    case CATCHMENT_CUDA_MAX_POOL:
      return MakeMaxPool(device, spec, input);
    case CATCHMENT_CUDA_AVERAGE_POOL:
      return MakeAveragePool(device, spec, input);
    case CATCHMENT_CUDA_GLOBAL_AVERAGE_POOL:
      return MakeGlobalAveragePool(device, spec, input);
    case CATCHMENT_CUDA_RELU:
      return MakeRelu(device, spec, input);
    case CATCHMENT_CUDA_GELU:
      return MakeGelu(device, spec, input);
    case CATCHMENT_CUDA_TANH:
      return MakeTanh(device, spec, input);
    case CATCHMENT_CUDA_SIGMOID:
      return MakeSigmoid(device, spec, input);
    case CATCHMENT_CUDA_SOFTMAX:
      return MakeSoftmax(device, spec, input);
    case CATCHMENT_CUDA_DROPOUT:
      return MakeDropout(device, spec, input);
    case CATCHMENT_CUDA_BATCH_NORM:
      return MakeBatchNorm(device, spec, input);
    case CATCHMENT_CUDA_LAYER_NORM:
      return MakeLayerNorm(device, spec, input);
    case CATCHMENT_CUDA_LSTM:
      return MakeLstm(device, spec, input);
    case CATCHMENT_CUDA_RESIDUAL:
      return MakeAdd(device, spec, first, second);
  }
  throw Error("there is no layer of kind " + std::to_string(spec.kind));
}

CatchmentCudaBackend* Create(int32_t index, int32_t precision, char* why, int32_t why_size) {
  try {
    if (precision < CATCHMENT_CUDA_FLOAT32 || precision > CATCHMENT_CUDA_FLOAT16)
      throw Error("there is no precision " + std::to_string(precision));
    return new CatchmentCudaBackend{
        .device = Device(index, static_cast<Precision>(precision)), .description = {}, .error = {}};
  } catch (const std::exception& error) {
    std::snprintf(why, why_size, "%s", error.what());
    return nullptr;
  }
}

void Destroy(CatchmentCudaBackend* backend) { delete backend; }

const char* LastError(const CatchmentCudaBackend* backend) { return backend->error.c_str(); }

const char* Describe(CatchmentCudaBackend* backend) {
  Try(backend, [&] { backend->description = backend->device.Describe(); });
  return backend->description.c_str();
}

int32_t Enter(CatchmentCudaBackend* backend) {
  return Try(backend, [&] { backend->device.Enter(); });
}

int32_t Pin(CatchmentCudaBackend* backend, void* memory, uint64_t bytes) {
  return backend->device.Pin(memory, bytes) ? 0 : 1;
}

void Unpin(CatchmentCudaBackend* backend, void* memory) { backend->device.Unpin(memory); }

Node* CreateSource(CatchmentCudaBackend* backend, const CatchmentCudaShape* shape, int32_t batch_size) {
  return TryMake(backend, [&] { return std::make_unique<Source>(&backend->device, *shape, batch_size); });
}

Node* CreateLayer(CatchmentCudaBackend* backend, const CatchmentCudaLayer* spec, Tensor* const* inputs,
                  int32_t num_inputs) {
  return TryMake(backend, [&] {
    auto layer = std::make_unique<LayerNode>();
    Tensor* const first = layer->Flat(&backend->device, inputs[0], spec->input);
    Tensor* const second = num_inputs > 1 ? layer->Flat(&backend->device, inputs[1], spec->input) : nullptr;
    layer->node = MakeLayer(&backend->device, *spec, WithShape(*first, spec->input), first, second);
    return layer;
  });
}

Node* CreateFork(CatchmentCudaBackend* backend, Tensor* tensor, int32_t readers) {
  return TryMake(backend, [&] { return std::make_unique<Fork>(&backend->device, *tensor, readers); });
}

Node* CreateLoss(CatchmentCudaBackend* backend, const CatchmentCudaLossSpec* spec, Tensor* outputs) {
  return TryMake(backend, [&] {
    auto loss = std::make_unique<LossNode>();
    const CatchmentCudaShape shape = {spec->num_outputs, 1, 1, 1};
    const Tensor view = WithShape(*loss->Flat(&backend->device, outputs, shape), shape);
    loss->node = std::make_unique<Loss>(&backend->device, *spec, view);
    backend->device.CheckMemory(spec->batch_size);
    return loss;
  });
}

void DestroyNode(Node* node) { delete node; }

Tensor* Output(Node* node, int32_t reader) {
  if (auto* source = dynamic_cast<Source*>(node)) return source->output.tensor();
  if (auto* fork = dynamic_cast<Fork*>(node)) return &fork->views[reader];
  return static_cast<LayerNode*>(node)->node->output.tensor();
}

int32_t Load(CatchmentCudaBackend* backend, Node* source, const float* inputs, int32_t samples) {
  return Try(backend, [&] { static_cast<Source*>(source)->Load(inputs, samples); });
}

int32_t Forward(CatchmentCudaBackend* backend, Node* node, const float* parameters, const Pass* pass) {
  return Try(backend, [&] {
    auto* const reader = static_cast<LayerNode*>(node);
    Layer* const layer = reader->node.get();
    reader->Flatten();
    if (layer->parameters) layer->parameters->Load(parameters);
    layer->Forward(*pass);
  });
}

int32_t Backward(CatchmentCudaBackend* backend, Node* node, const Pass* pass, float* gradient) {
  return Try(backend, [&] {
    auto* const reader = static_cast<LayerNode*>(node);
    Layer* const layer = reader->node.get();
    layer->Backward(*pass);
    if (layer->parameters) layer->parameters->Send(gradient);
    reader->FlattenBackward();
  });
}

int32_t AwaitGradient(CatchmentCudaBackend* backend, Node* node, float* gradient) {
  return Try(backend, [&] {
    Layer& layer = *static_cast<LayerNode*>(node)->node;
    if (layer.parameters) layer.parameters->Await(gradient);
  });
}

int32_t SumGradients(CatchmentCudaBackend* backend, Node* fork) {
  return Try(backend, [&] { static_cast<Fork*>(fork)->SumGradients(); });
}

void ScaleGradient(Node* loss, float scale) { static_cast<LossNode*>(loss)->node->ScaleGradient(scale); }

int32_t RunLoss(CatchmentCudaBackend* backend, Node* node, const int32_t* labels, const float* targets,
                int32_t samples, int32_t gradient) {
  return Try(backend, [&] {
    auto* const reader = static_cast<LossNode*>(node);
    reader->Flatten();
    reader->node->Run(labels, targets, samples, gradient != 0);
    if (gradient != 0) reader->FlattenBackward();
  });
}

int32_t AwaitScore(CatchmentCudaBackend* backend, Node* node, CatchmentCudaScore* score) {
  return Try(backend, [&] { *score = static_cast<LossNode*>(node)->node->Await(); });
}

}  // namespace

void SetLayerFunctions(CatchmentCudaPlugin* plugin) {
  plugin->create = Create;
  plugin->destroy = Destroy;
  plugin->error = LastError;
  plugin->describe = Describe;
  plugin->enter = Enter;
  plugin->pin = Pin;
  plugin->unpin = Unpin;
  plugin->create_source = CreateSource;
  plugin->create_layer = CreateLayer;
  plugin->create_fork = CreateFork;
  plugin->create_loss = CreateLoss;
  plugin->destroy_node = DestroyNode;
  plugin->output = Output;
  plugin->load = Load;
  plugin->forward = Forward;
  plugin->backward = Backward;
  plugin->await_gradient = AwaitGradient;
  plugin->sum_gradients = SumGradients;
  plugin->scale_gradient = ScaleGradient;
  plugin->run_loss = RunLoss;
  plugin->await_score = AwaitScore;
}

}  // namespace catchment::cuda
