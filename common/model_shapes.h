// What a job's model comes to for one input: every layer's name, shapes and tensors. Whoever needs to know
// the parameters (servers, checkpoints, the network) gets them from here, so that they agree.
//
// Shapes: of one sample, C x H x W or a vector. Weights have PyTorch's names and layouts: "conv1.weight" is
// filters x C x k x k, "dense1.weight" is units x n; biases are "conv1.bias", "dense1.bias".
#ifndef CATCHMENT_COMMON_MODEL_SHAPES_H_
#define CATCHMENT_COMMON_MODEL_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/parameter_layout.h"
#include "proto/job.pb.h"

namespace catchment {

// One sample between two layers: C x H x W, or a vector of `channels` values (height and width are 1).
struct SampleShape {
  int64_t channels = 0;
  int64_t height = 1;
  int64_t width = 1;
  bool is_vector = false;

  static SampleShape Vector(int64_t n) { return {n, 1, 1, true}; }
  int64_t size() const { return channels * height * width; }
  bool operator==(const SampleShape&) const = default;
};

// "64x12x12"; "128" for a vector.
std::string ToString(const SampleShape& shape);

// kSynthetic: of model.synthetic; it has a tensor, and computes nothing.
enum class LayerKind { kConv2d, kDense, kMaxPool2d, kFlatten, kRelu, kDropout, kSynthetic };

struct LayerShape {
  std::string name;
  LayerKind kind = LayerKind::kRelu;
  SampleShape input;
  SampleShape output;
  std::vector<TensorSpec>
      tensors;  // weight and bias; of kSynthetic a weight alone; empty where the kind has none
  int64_t fan_in = 0;               // inputs of one output value; 0 where there are no tensors
  int64_t kernel_size = 0;          // conv2d and max_pool: of the square window
  int64_t stride = 1;
  int64_t padding = 0;
  float rate = 0;  // dropout
};

// Infers every layer of `model`. The last layer's output must be a vector of num_classes.
// Errors: InvalidArgument with all that is wrong, a line each, and each naming its field:
// "model.layers[3].dense: its input is 64x12x12, and dense takes a vector; put flatten before it".
// A synthetic model has no use for input and num_classes.
absl::StatusOr<std::vector<LayerShape>> InferShapes(const v1::Model& model, const SampleShape& input,
                                                    int num_classes);

// All tensors, in the model's order: that of the flat parameter vector.
std::vector<TensorSpec> ListTensors(const std::vector<LayerShape>& layers);

int64_t CountParameters(const std::vector<LayerShape>& layers);

// Bytes that a worker needs to train with minibatches of batch_size, roughly: for each layer its output and
// the gradient of it, for a dropout or pooling layer also a mask, and four copies of the parameters (weights
// and gradient, in the flat vector and as the kernels like them; without kernels, in kSynthetic, two). What
// kernels use inside is not counted.
int64_t EstimateMemoryBytes(const std::vector<LayerShape>& layers, int64_t batch_size);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_MODEL_SHAPES_H_
