// What computes a network on one kind of device. A network (worker/model) is built of a backend's kernels, so
// one model definition runs on each of them.
//
// A kernel is made once for a layer and a batch size, and then runs forward and backward as often as wanted
// without allocating. Between two kernels lies an activation, whose place and order of values are the
// backend's own business; samples, labels, parameters and gradients are on the host in plain layouts:
// samples row-major, one after another, parameters and gradients as in the flat vector
// (common/model_shapes.h).
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
#include "absl/types/span.h"
#include "common/model_shapes.h"

namespace catchment {

// The values of a minibatch between two kernels, and the gradient of the loss with regard to them.
class Activation {
 public:
  virtual ~Activation() = default;
};

enum class PassMode {
  kTraining,   // dropout is on; batch_norm takes mean and variance of the minibatch
  kGathering,  // dropout is off; batch_norm does as in training, and tells what it took
  kScoring     // dropout is off; batch_norm takes the mean and variance that it is given
};

// What one pass over the network knows of its minibatch. A batch of fewer samples than the kernels were made
// for is padded: rows from `samples` on hold finite values, and their gradients are zero.
struct Pass {
  PassMode mode = PassMode::kScoring;
  int samples = 0;
  const uint64_t* sample_ids = nullptr;  // names each sample's dropout masks; only read in training
  // Of a layer with CountStatistics() above 0, on the host: each channel's mean, then each channel's variance
  // (the divisor is the number of values). Written (=, over the `samples` rows) in gathering, read in
  // scoring.
  float* statistics = nullptr;
  // Which of the kernel's parts() to compute.
  int part = 0;
};

class Kernel {
 public:
  virtual ~Kernel() = default;

  virtual Activation* output() = 0;

  // Forward and Backward are called once for each part: Forward from the first part to the last, Backward
  // from the last to the first. A call of Forward reads, and a call of Backward finishes the gradient of, the
  // parameters from part_begin(part) to part_begin(part + 1), or to the end of the layer's. After Backward of
  // a part, the kernel reads these parameters no more. Kernels of a backend that runs ahead have one part.
  virtual int parts() const { return 1; }
  virtual int64_t part_begin(int part) const { return 0; }

  // `parameters` is the layer's part of the flat vector: its tensors, one after another.
  virtual void Forward(const float* parameters, const Pass& pass) = 0;

  // Comes after Forward with the same parameters and pass, a training one, when the output's gradient is in
  // place. Writes the parameters' gradient (=, not +=) and, unless the spec says otherwise, the gradients of
  // the inputs (=), which are complete after the last call. May destroy the gradient of the output.
  virtual void Backward(const float* parameters, const Pass& pass, float* gradient) = 0;

  // Comes once after each Backward, with the same `gradient`: waits until it is there, of a backend that runs
  // ahead.
  virtual void AwaitGradient(float* gradient) {}
};

struct KernelSpec {
  LayerShape layer;
  int index = 0;  // of the layer in the model; names the stream of its dropout
  int batch_size = 1;
  bool relu = false;           // the next layer is relu, and this kernel (FusesRelu) does it too
  bool in_place = false;       // relu, dropout, add: the output may take the place of the first input
  bool input_gradient = true;  // false: nobody before it needs one
  uint64_t seed = 0;           // of dropout
};

// Whether a kernel of this kind does a relu that follows it.
inline bool FusesRelu(LayerKind kind) {
  return kind == LayerKind::kConv2D || kind == LayerKind::kDense || kind == LayerKind::kBatchNorm ||
         kind == LayerKind::kResidual;
}

// An activation that several kernels read: each gets a view of the same values with a gradient of its own.
class Fork {
 public:
  virtual ~Fork() = default;
  virtual Activation* view(int reader) = 0;
  // The activation's gradient = the sum of the views'.
  virtual void SumGradients() = 0;
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
  double loss_sum = 0;  // over the samples
  // Samples whose label has the largest output (of equal ones the first). With one output for two classes:
  // whose output is above 0 for label 1, and not for label 0.
  int64_t correct = 0;
  int64_t samples = 0;

  Score& operator+=(const Score& other) {
    loss_sum += other.loss_sum;
    correct += other.correct;
    samples += other.samples;
    return *this;
  }
};

// model.loss; the formulas are in proto/job.proto.
struct LossSpec {
  enum class Kind { kSoftmaxCrossEntropy, kSigmoidCrossEntropy, kMeanSquaredError };
  Kind kind = Kind::kSoftmaxCrossEntropy;
  int num_outputs = 1;  // one a class, or one for two
  float label_smoothing = 0;
  int batch_size = 1;

  int num_classes() const { return num_outputs == 1 && kind == Kind::kSigmoidCrossEntropy ? 2 : num_outputs; }
};

class Loss {
 public:
  virtual ~Loss() = default;
  // What its gradient is multiplied with from now on; 1 at first. Of backends that want a loss scale.
  virtual void ScaleGradient(float scale) {}
  // Scores the first `samples` rows of the outputs against `labels` (samples classes), or against `targets`
  // (samples x num_outputs real numbers, without smoothing), and the other one is null. With `gradient`, also
  // writes the gradient of the mean loss over these samples. Targets do not go with softmax cross-entropy, and
  // none of their samples is correct.
  virtual Score Run(const int32_t* labels, const float* targets, int samples, bool gradient) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu: oneDNN 2.6.3, AVX-512, 2 threads".
  virtual std::string Describe() const = 0;

  // Called by a thread before it runs kernels.
  virtual void Enter() = 0;

  // Whether its kernels return before they are done, so that the next ones can be begun meanwhile.
  virtual bool runs_ahead() const { return false; }

  // Whether gradients between its layers have float16's range, so that the loss is to be scaled.
  virtual bool wants_loss_scale() const { return false; }

  virtual absl::StatusOr<std::unique_ptr<Source>> CreateSource(const SampleShape& shape, int batch_size) = 0;

  // For every kind but flatten, which is only another look at the same values: a kernel that takes vectors
  // takes an image or a sequence for the vector that it is when flattened. `inputs`: two for add, one for the
  // others.
  virtual absl::StatusOr<std::unique_ptr<Kernel>> CreateKernel(const KernelSpec& spec,
                                                               absl::Span<Activation* const> inputs) = 0;

  virtual absl::StatusOr<std::unique_ptr<Fork>> CreateFork(Activation* activation, int readers) = 0;

  virtual absl::StatusOr<std::unique_ptr<Loss>> CreateLoss(const LossSpec& spec, Activation* outputs) = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_BACKEND_H_
