// What computes a network on one kind of device. A network (worker/model) is built of a backend's kernels, so
// one model definition runs on each of them.
//
// A kernel is made once for a layer and a batch size, and then runs forward and backward as often as wanted
// without allocating. Between two kernels lies an activation, whose place and order of values are the
// backend's own business; samples, labels, parameters and gradients are on the host in plain layouts:
// samples N x C x H x W, parameters and gradients as in the flat vector (common/model_shapes.h).
//
// Threads: a backend and all kernels made by it belong to one network and are used by one thread at a time.
// Errors: creation answers with a status (out of memory, a shape that the device cannot do); runs cannot
// fail.
#ifndef CATCHMENT_KERNELS_BACKEND_H_
#define CATCHMENT_KERNELS_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/model_shapes.h"

namespace catchment {

// The values of a minibatch between two kernels, and the gradient of the loss with regard to them.
class Activation {
 public:
  virtual ~Activation() = default;
};

// What one pass over the network knows of its minibatch. A batch of fewer samples than the kernels were made
// for is padded: rows from `samples` on hold finite values, and their gradients are zero.
struct Pass {
  bool training = false;  // dropout is on
  int samples = 0;
  const uint64_t* sample_ids = nullptr;  // names each sample's dropout masks; only read while training
};

class Kernel {
 public:
  virtual ~Kernel() = default;

  // Element-wise kernels work in place: their output is their input.
  virtual Activation* output() = 0;

  // `parameters` is the layer's part of the flat vector: weight, then bias.
  virtual void Forward(const float* parameters, const Pass& pass) = 0;

  // Comes after Forward with the same parameters and pass, when the output's gradient is in place. Writes the
  // parameters' gradient (=, not +=) and, unless the spec says otherwise, the gradient of the input. May
  // destroy the gradient of the output.
  virtual void Backward(const float* parameters, const Pass& pass, float* gradient) = 0;
};

struct KernelSpec {
  LayerShape layer;
  int index = 0;  // of the layer in the model; names the stream of its dropout
  int batch_size = 1;
  bool relu = false;           // the next layer is relu, and this kernel (conv2d or dense) does it too
  bool input_gradient = true;  // false: nobody before it needs one
  uint64_t seed = 0;           // of dropout
};

// Where the samples come in.
class Source {
 public:
  virtual ~Source() = default;
  virtual Activation* output() = 0;
  // Copies `samples` samples in and zeroes the rows that are left.
  virtual void Load(const float* inputs, int samples) = 0;
};

struct Score {
  double loss_sum = 0;  // of -log softmax(logits)[label] over the samples
  int64_t correct = 0;  // samples whose label has the largest logit (of equal ones the first)
  int64_t samples = 0;

  Score& operator+=(const Score& other) {
    loss_sum += other.loss_sum;
    correct += other.correct;
    samples += other.samples;
    return *this;
  }
};

// Softmax cross-entropy.
class Loss {
 public:
  virtual ~Loss() = default;
  // Scores the first `samples` rows of the logits. With `gradient`, also writes the gradient of the mean loss
  // over these samples.
  virtual Score Run(const int32_t* labels, int samples, bool gradient) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu: oneDNN 2.6.3, AVX-512, 2 threads".
  virtual std::string Describe() const = 0;

  // Called by a thread before it runs kernels.
  virtual void Enter() = 0;

  virtual absl::StatusOr<std::unique_ptr<Source>> CreateSource(const SampleShape& shape, int batch_size) = 0;

  // For every kind but flatten, which is only another look at the same values: a dense or dropout kernel
  // takes an image for the vector that it is when flattened.
  virtual absl::StatusOr<std::unique_ptr<Kernel>> CreateKernel(const KernelSpec& spec, Activation* input) = 0;

  virtual absl::StatusOr<std::unique_ptr<Loss>> CreateLoss(int num_classes, int batch_size,
                                                           Activation* logits) = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_BACKEND_H_
