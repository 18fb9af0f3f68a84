// Infers the layers of a job's model, with their names, shapes and tensors, from the shape of its input.
// Servers, checkpoints and networks all use this list of parameters, so that they agree.
//
// Residual blocks are flattened: the layers of the branch, those of the shortcut, then an addition with the
// name of the block. The layers are therefore a graph in topological order.
//
// Shapes are those of one sample: C x H x W, a vector, or a sequence. Weights have PyTorch's names and
// layouts: "conv1.weight" is filters x C/groups x k x k, "dense1.weight" is units x n; biases are
// "conv1.bias", "dense1.bias".
#ifndef CATCHMENT_COMMON_JOB_MODEL_SHAPES_H_
#define CATCHMENT_COMMON_JOB_MODEL_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/parameter_layout.h"
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

// Returns "64x12x12"; "128" for a vector; "50x19" for a sequence.
std::string ToString(const SampleShape& shape);

// The target of a sample: one of `classes` classes, or `reals` real numbers.
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

// The kind of a layer, LayerKind::kDense for example. kResidual is the addition that ends a residual block.
// KIND_NOT_SET is a layer of model.synthetic, which has a tensor and computes nothing, or a part of
// model.external, of which only the tensors are known.
using LayerKind = v1::Layer::KindCase;

// Returns the name that a job file has for the kind: "conv2d", "max_pool"; "synthetic" for KIND_NOT_SET.
std::string LayerKindName(LayerKind kind);

// The distribution of a tensor's initial values: uniform in +-scale, normal with standard deviation scale, or
// all of them scale.
struct InitialValues {
  enum class Kind { kUniform, kNormal, kConstant };
  Kind kind = Kind::kUniform;
  double scale = 0;
};

struct LayerShape {
  std::string name;
  LayerKind kind = LayerKind::kRelu;
  std::vector<int> inputs;  // the indices of the layers that it reads; kData for the samples
  SampleShape input;        // of each of them
  SampleShape output;
  std::vector<TensorSpec> tensors;     // weight, then bias; lstm: as in job.proto; empty if the kind has none
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
  bool external = false;    // of model.external

  static constexpr int kData = -1;
};

// Sets every optional field of the layers that is not set to its default (proto/job.proto).
void FillLayerDefaults(google::protobuf::RepeatedPtrField<v1::Layer>* layers);

// Infers every layer of `model`, whose optional fields need not be set. The output of the last layer must
// have the shape that model.loss requires for `target`: a vector with one value for each class or each real
// number. Synthetic and external models ignore `input` and `target`.
// Errors: InvalidArgument with one line for each problem, which names its field:
// "model.layers[3].dense: its input is 64x12x12, but dense needs a vector; put flatten before it".
absl::StatusOr<std::vector<LayerShape>> InferShapes(const v1::Model& model, const SampleShape& input,
                                                    const TargetShape& target);

// Returns all tensors in the order of the flat parameter vector, which is that of the model.
std::vector<TensorSpec> ListTensors(const std::vector<LayerShape>& layers);

// Returns the part of that vector that each layer with parameters has.
std::vector<Range> LayerRanges(const std::vector<LayerShape>& layers);

int64_t CountParameters(const std::vector<LayerShape>& layers);

// Returns how many statistics batch_norm needs for scoring: each channel's mean, then each channel's
// variance. 0 for other kinds.
int64_t CountStatistics(const LayerShape& layer);

// Estimates the bytes that a worker needs to train with minibatches of batch_size: the output of each layer
// and its gradient, another gradient for each further layer that reads the output, a mask for dropout and max
// pooling, the gates, cells and states of lstm, and four copies of the parameters: weights and gradient, in
// the flat vector and in the kernels' layouts, or, of an external model, in the program's memory. A synthetic
// model, which computes nothing, has two. The scratch memory of kernels and programs is not counted.
int64_t EstimateMemoryBytes(const std::vector<LayerShape>& layers, int64_t batch_size);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_MODEL_SHAPES_H_
