// What a job's model comes to for one input: every layer's name, shapes and tensors. Whoever needs to know
// the parameters (servers, checkpoints, the network) gets them from here, so that they agree.
//
// Residual blocks come flattened: the layers of the branch, those of the shortcut, then an addition that has
// the block's name. So the layers are a graph in an order in which each comes after what it reads.
//
// Shapes: of one sample, C x H x W, a vector, or a sequence. Weights have PyTorch's names and layouts:
// "conv1.weight" is filters x C/groups x k x k, "dense1.weight" is units x n; biases are "conv1.bias",
// "dense1.bias".
#ifndef CATCHMENT_COMMON_MODEL_SHAPES_H_
#define CATCHMENT_COMMON_MODEL_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/parameter_layout.h"
#include "proto/job.pb.h"

namespace catchment {

enum class SampleKind { kImage, kVector, kSequence };

// One sample between two layers: C x H x W; a vector of `channels` values (height and width are 1); or a
// sequence of `channels` steps of `width` values (height is 1). Row-major.
struct SampleShape {
  int64_t channels = 0;
  int64_t height = 1;
  int64_t width = 1;
  SampleKind kind = SampleKind::kImage;

  static SampleShape Vector(int64_t n) { return {n, 1, 1, SampleKind::kVector}; }
  static SampleShape Sequence(int64_t steps, int64_t features) {
    return {steps, 1, features, SampleKind::kSequence};
  }
  bool is_vector() const { return kind == SampleKind::kVector; }
  bool is_sequence() const { return kind == SampleKind::kSequence; }
  int64_t size() const { return channels * height * width; }
  bool operator==(const SampleShape&) const = default;
};

// "64x12x12"; "128" for a vector; "50x19" for a sequence.
std::string ToString(const SampleShape& shape);

// What goes with a sample: one of `classes`, or `reals` real numbers.
struct TargetShape {
  int classes = 0;
  int reals = 0;  // 0: a class

  TargetShape() = default;
  TargetShape(int num_classes) : classes(num_classes) {}  // NOLINT: most data has classes
  static TargetShape Real(int n) {
    TargetShape target;
    target.reals = n;
    return target;
  }
  bool is_real() const { return reals > 0; }
  bool operator==(const TargetShape&) const = default;
};

// kAdd: what ends a residual block. kSynthetic: of model.synthetic; it has a tensor, and computes nothing.
enum class LayerKind {
  kConv2d,
  kDense,
  kMaxPool2d,
  kAveragePool2d,
  kGlobalAveragePool,
  kFlatten,
  kRelu,
  kGelu,
  kTanh,
  kSigmoid,
  kSoftmax,
  kDropout,
  kBatchNorm,
  kLayerNorm,
  kLstm,
  kAdd,
  kSynthetic
};

// Where a tensor's values begin: uniform in +-scale, normal with deviation scale, or all of them scale.
struct InitialValues {
  enum class Kind { kUniform, kNormal, kConstant };
  Kind kind = Kind::kUniform;
  double scale = 0;
};

struct LayerShape {
  std::string name;
  LayerKind kind = LayerKind::kRelu;
  std::vector<int> inputs;  // indices of the layers that it reads; kData for the samples
  SampleShape input;        // of each of them
  SampleShape output;
  std::vector<TensorSpec> tensors;  // weight, then bias; lstm: as in job.proto; empty where the kind has none
  std::vector<InitialValues> initial;  // of each tensor
  int64_t fan_in = 0;                  // conv2d and dense: inputs of one output value
  int64_t kernel_size = 0;             // conv2d and pooling: of the square window
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;       // conv2d
  bool bias = true;         // conv2d and dense
  float rate = 0;           // dropout
  float epsilon = 0;        // batch_norm and layer_norm
  int64_t ghost_batch = 0;  // batch_norm; 0: the whole minibatch

  static constexpr int kData = -1;
};

// Infers every layer of `model`. The last layer's output must be a vector with a value for each class, or for
// each real number, or of what else model.loss takes, and the loss one for such a target. Errors:
// InvalidArgument with all that is wrong, a line each, and each naming its field: "model.layers[3].dense: its
// input is 64x12x12, and dense takes a vector; put flatten before it". A synthetic model has no use for input
// and target.
absl::StatusOr<std::vector<LayerShape>> InferShapes(const v1::Model& model, const SampleShape& input,
                                                    const TargetShape& target);

// All tensors, in the model's order: that of the flat parameter vector.
std::vector<TensorSpec> ListTensors(const std::vector<LayerShape>& layers);

int64_t CountParameters(const std::vector<LayerShape>& layers);

// How many values batch_norm scores with: each channel's mean, then each channel's variance. 0 for other
// kinds.
int64_t CountStatistics(const LayerShape& layer);

// Bytes that a worker needs to train with minibatches of batch_size, roughly: for each layer its output and
// the gradient of it, a gradient more for each further layer that reads it, for a dropout or max pooling
// layer also a mask, for lstm its gates, cells and states, and four copies of the parameters (weights and
// gradient, in the flat vector and as the kernels like them; without kernels, in kSynthetic, two). What
// kernels use inside is not counted.
int64_t EstimateMemoryBytes(const std::vector<LayerShape>& layers, int64_t batch_size);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_MODEL_SHAPES_H_
