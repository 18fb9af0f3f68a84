// The parts of a program on a device: activations, and the nodes that write and read them.
//
// Order of values: an image is height x width x channels, the order in which a convolution is one matrix
// product; a vector and a sequence are as on the host. An image that is read as a vector passes through a
// Flattening.
#ifndef CATCHMENT_KERNELS_CUDA_NODE_H_
#define CATCHMENT_KERNELS_CUDA_NODE_H_

#include <memory>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/factor.h"
#include "kernels/cuda/normalization.h"
#include "kernels/cuda/plugin_api.h"

// These are opaque types in plugin_api.h.
struct CatchmentCudaTensor {
  CatchmentCudaShape shape;
  int64_t batch = 0;
  float* value = nullptr;     // batch x sample_size()
  float* gradient = nullptr;  // as value
  // The type of the values and gradients that both pointers point to: float32, or the device's 16-bit
  // precision (StorageOf). FactorReader and FactorWriter convert.
  catchment::cuda::Precision storage = catchment::cuda::Precision::kFloat32;
  // True if the producing layer only reads the gradient, through `gradient`, in its backward pass. Its only
  // reader may then set the pointer to other memory of the same type that holds the gradient by then.
  bool gradient_may_be_shared = false;
  // Not null if the producing layer must zero the gradient wherever the value is not above zero. A Fork,
  // which writes the gradient, does so itself and sets this to true.
  bool* gradient_is_masked = nullptr;
  // Not null if a batch norm produces the value. Its only reader may set `is_taken` and compute the value
  // itself; it is then not stored.
  catchment::cuda::Normalizer* normalizer = nullptr;

  int64_t sample_size() const { return shape.channels * shape.height * shape.width; }
  int64_t size() const { return batch * sample_size(); }
  int64_t area() const { return shape.height * shape.width; }
  bool is_image() const { return shape.kind == 0; }
  bool is_rounded() const { return catchment::cuda::Is16Bit(storage); }
};

struct CatchmentCudaNode {
  virtual ~CatchmentCudaNode() = default;
};

namespace catchment::cuda {

using Tensor = CatchmentCudaTensor;
using Node = CatchmentCudaNode;
using Pass = CatchmentCudaPass;

enum Mode { kTraining = 0, kGathering = 1, kScoring = 2 };

// A tensor with its memory.
class Activation {
 public:
  Activation(Device* device, const CatchmentCudaShape& shape, int64_t batch,
             Precision storage = Precision::kFloat32)
      : tensor_{.shape = shape, .batch = batch, .storage = storage},
        value_(device, Checked(tensor_.size(), "an activation") * int64_t{BytesOf(storage)}),
        gradient_(device, value_.size()) {
    tensor_.value = reinterpret_cast<float*>(value_.data());
    tensor_.gradient = reinterpret_cast<float*>(gradient_.data());
  }
  Tensor* tensor() { return &tensor_; }
  const Tensor* operator->() const { return &tensor_; }
  const Tensor& operator*() const { return tensor_; }

 private:
  Tensor tensor_;
  DeviceArray<char> value_;
  DeviceArray<char> gradient_;
};

// Returns the type of a layer's output and of its gradient: 16 bits if that is the precision of products, all
// readers can read it, and each pixel's values are rows that tensor cores can load. Biases and relus of
// products are float32's.
inline Precision StorageOf(const Device& device, const CatchmentCudaLayer& spec) {
  const bool writes = spec.kind == CATCHMENT_CUDA_BATCH_NORM || spec.kind == CATCHMENT_CUDA_RESIDUAL ||
                      (spec.kind == CATCHMENT_CUDA_CONV2D && spec.bias == 0 && spec.relu == 0);
  const bool rounds = Is16Bit(device.precision()) && spec.may_round_output != 0 && writes &&
                      spec.output.kind == 0 && spec.output.channels % 8 == 0;
  return rounds ? device.precision() : Precision::kFloat32;
}

// A layer's part of the flat vector and its gradient on the device, with the copies from and to the host.
class Parameters {
 public:
  Parameters(Device* device, int64_t size)
      : device_(device),
        value_(device, size),
        gradient_(device, size),
        in_(device, size),
        out_(device, size) {}

  float* value() const { return value_.data(); }
  float* gradient() const { return gradient_.data(); }
  int64_t size() const { return value_.size(); }

  void Load(const float* host) {
    device_->CopyIn(value_.data(), in_.Read(host, value_.size()), value_.bytes());
  }
  void Send(float* host) { sent_ = device_->CopyOut(out_.Write(host), gradient_.data(), gradient_.bytes()); }
  void Await(float* host) {
    device_->Await(sent_);
    out_.Finish(host);
  }

 private:
  Device* device_;
  DeviceArray<> value_, gradient_;
  Staging<float> in_, out_;
  uint64_t sent_ = 0;
};

// Converts an image to the vector that it is on the host.
class Flattening {
 public:
  Flattening(Device* device, const Tensor& image);
  void Forward();
  void Backward();

  Activation output;

 private:
  Device* device_;
  Tensor image_;
};

class Layer : public Node {
 public:
  Layer(Device* device, const CatchmentCudaLayer& spec, int64_t num_parameters)
      : output(device, spec.output, spec.batch_size, StorageOf(*device, spec)) {
    if (num_parameters > 0) parameters = std::make_unique<Parameters>(device, num_parameters);
  }

  // Parameters are loaded before Forward, and their gradients are sent after Backward.
  virtual void Forward(const Pass& pass) = 0;
  virtual void Backward(const Pass& pass) = 0;

  Activation output;
  std::unique_ptr<Parameters> parameters;  // null if the layer has none
};

// Each file creates one kind of layer, or a family of kinds. The input's shape is `spec.input`.
std::unique_ptr<Layer> MakeConv2d(Device* device, const CatchmentCudaLayer& spec, const Tensor& input);
std::unique_ptr<Layer> MakeDense(Device* device, const CatchmentCudaLayer& spec, const Tensor& input);
std::unique_ptr<Layer> MakeMaxPool(Device* device, const CatchmentCudaLayer& spec, const Tensor& input);
std::unique_ptr<Layer> MakeAveragePool(Device* device, const CatchmentCudaLayer& spec, const Tensor& input);
std::unique_ptr<Layer> MakeGlobalAveragePool(Device* device, const CatchmentCudaLayer& spec,
                                             const Tensor& input);
std::unique_ptr<Layer> MakeRelu(Device* device, const CatchmentCudaLayer& spec, const Tensor& input);
std::unique_ptr<Layer> MakeGelu(Device* device, const CatchmentCudaLayer& spec, const Tensor& input);
std::unique_ptr<Layer> MakeTanh(Device* device, const CatchmentCudaLayer& spec, const Tensor& input);
std::unique_ptr<Layer> MakeSigmoid(Device* device, const CatchmentCudaLayer& spec, const Tensor& input);
std::unique_ptr<Layer> MakeSoftmax(Device* device, const CatchmentCudaLayer& spec, const Tensor& input);
std::unique_ptr<Layer> MakeDropout(Device* device, const CatchmentCudaLayer& spec, const Tensor& input);
std::unique_ptr<Layer> MakeBatchNorm(Device* device, const CatchmentCudaLayer& spec, const Tensor& input);
std::unique_ptr<Layer> MakeLayerNorm(Device* device, const CatchmentCudaLayer& spec, const Tensor& input);
std::unique_ptr<Layer> MakeLstm(Device* device, const CatchmentCudaLayer& spec, const Tensor& input);
std::unique_ptr<Layer> MakeAdd(Device* device, const CatchmentCudaLayer& spec, Tensor* first, Tensor* second);

// The input of a network.
class Source : public Node {
 public:
  Source(Device* device, const CatchmentCudaShape& shape, int64_t batch);
  void Load(const float* inputs, int samples);

  // Sets the rows from `samples` on to zero. It is public because nvcc requires that of functions with
  // lambdas.
  void ClearPadding(int samples);

  Activation output;

 private:
  Device* device_;
  Staging<float> staged_;
  DeviceArray<> plain_;  // as on the host; empty if that is the device's order
};

// Views of one activation, each with a separate gradient.
class Fork : public Node {
 public:
  Fork(Device* device, const Tensor& tensor, int readers);
  void SumGradients();

  std::vector<Tensor> views;

  // Sets the sum, or zero wherever the mask is not above zero. It is public because nvcc requires that of
  // functions with lambdas.
  template <int kWidth>
  void SumPacks(FactorReader a, FactorReader b, FactorReader mask, FactorWriter sum);

 private:
  Device* device_;
  Tensor tensor_;
  std::vector<DeviceArray<char>> gradients_;
};

class Loss : public Node {
 public:
  // `outputs` must be a vector.
  Loss(Device* device, const CatchmentCudaLossSpec& spec, const Tensor& outputs);
  // Sets the factor of the gradient for all later runs.
  void ScaleGradient(float scale) { gradient_scale_ = scale; }
  // Runs the loss; Await returns the score of the last run.
  void Run(const int32_t* labels, const float* targets, int samples, bool gradient);
  CatchmentCudaScore Await();

  // Computes scores on the device from the labels, or the real targets, that are loaded. It is public because
  // nvcc requires that of functions with lambdas.
  void Score(int samples, bool real, bool gradient);

 private:
  void LoadLabels(const int32_t* labels, int samples);
  void LoadTargets(const float* targets, int samples);

  Device* device_;
  CatchmentCudaLossSpec spec_;
  float gradient_scale_ = 1;
  Tensor outputs_;
  PinnedArray<int32_t> staged_labels_;
  DeviceArray<int32_t> labels_;
  PinnedArray<> staged_targets_;
  DeviceArray<> targets_;
  DeviceArray<> scores_;  // the losses of the batch, then 1 or 0 for each correct or wrong label
  PinnedArray<> staged_scores_;
  int samples_ = 0;    // of the last run
  uint64_t sent_ = 0;  // the copy of its scores
};

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_NODE_H_
