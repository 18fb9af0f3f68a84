// A backend computes networks on one kind of device. A network (worker/model) is built of a backend's
// kernels, so one model definition runs on every device.
//
// A kernel is created once for a layer and a batch size, and then runs forward and backward any number of
// times without allocating memory. Between two kernels there is an activation; only the backend knows where
// and in which order its values are stored. Samples, labels, parameters and gradients are on the host in
// plain layouts: samples row-major, one after another, parameters and gradients as in the flat vector
// (common/job/model_shapes.h).
//
// Threads: a backend and its kernels belong to one network and are used by one thread at a time.
// Errors: creation returns a status (out of memory, a shape that the device cannot compute); running cannot
// fail.
#ifndef CATCHMENT_KERNELS_BACKEND_H_
#define CATCHMENT_KERNELS_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/model_shapes.h"

namespace catchment {

// The values of a minibatch between two kernels, and the gradient of the loss with respect to them.
class Activation {
 public:
  virtual ~Activation() = default;
};

enum class PassMode {
  kTraining,   // with dropout; batch_norm uses the mean and variance of the minibatch
  kGathering,  // without dropout; batch_norm does as in training, and returns the mean and variance
  kScoring     // without dropout; batch_norm uses the mean and variance that it is given
};

// The parameters of one pass over the network. A minibatch of fewer samples than the kernels were created for
// is padded: the rows from `samples` on hold finite values, and their gradients are zero.
struct Pass {
  PassMode mode = PassMode::kScoring;
  int samples = 0;
  const uint64_t* sample_ids = nullptr;  // selects each sample's dropout masks; only read in training
  // The statistics of a layer with CountStatistics() above 0, on the host: each channel's mean, then each
  // channel's variance (divided by the number of values). Written (=, over the first `samples` rows) when
  // gathering, read when scoring.
  float* statistics = nullptr;
  int part = 0;  // the one of the kernel's parts() to compute
};

class Kernel {
 public:
  virtual ~Kernel() = default;

  virtual Activation* output() = 0;

  // Returns the number of parts. Forward and Backward are called once for each part: Forward from the first
  // part to the last, Backward from the last to the first. Forward of a part reads the parameters from
  // part_begin(part) to part_begin(part + 1), or to the layer's end, and Backward of the part completes their
  // gradient. After that the kernel does not read these parameters again. Kernels of a backend that runs
  // ahead have one part.
  virtual int parts() const { return 1; }
  virtual int64_t part_begin(int part) const { return 0; }

  // Computes the output. `parameters` is the layer's part of the flat vector: its tensors, one after another.
  virtual void Forward(const float* parameters, const Pass& pass) = 0;

  // Writes the gradient of the parameters (=, not +=) and, with spec.input_gradient, the gradients of the
  // inputs (=), which are complete after the last call. Called after Forward with the same parameters and
  // pass, a training one, when the gradient of the output is complete. May overwrite the gradient of the
  // output. If the backend runs ahead, `gradient` is written at any time until AwaitGradient returns.
  virtual void Backward(const float* parameters, const Pass& pass, float* gradient) = 0;

  // Waits until `gradient` is written, if the backend runs ahead. Called once after each Backward, with
  // the same `gradient`; other kernels may run in between. The device then reads the parameters no more.
  virtual void AwaitGradient(float* gradient) {}
};

struct KernelSpec {
  LayerShape layer;
  int index = 0;  // of the layer in the model; selects the random numbers of its dropout
  int batch_size = 1;
  bool relu = false;           // the next layer is relu, and this kernel (FusesRelu) computes it too
  bool in_place = false;       // relu, dropout, addition: the output may overwrite the first input
  bool input_gradient = true;  // false: no layer before this one needs a gradient
  // All readers of the output are convolutions, batch norms and additions of images, so that a device may
  // store it, and its gradient, in the precision of products (IsRounding).
  bool may_round_output = false;
  uint64_t seed = 0;  // of dropout
};

// Returns true if kernels of this kind compute a relu that follows them.
inline bool FusesRelu(LayerKind kind) {
  return kind == LayerKind::kConv2D || kind == LayerKind::kDense || kind == LayerKind::kBatchNorm ||
         kind == LayerKind::kResidual;
}

// Returns true if kernels of this kind read and write images that are stored in the precision of products.
inline bool IsRounding(LayerKind kind) {
  return kind == LayerKind::kConv2D || kind == LayerKind::kBatchNorm || kind == LayerKind::kResidual;
}

// An activation that several kernels read: each gets a view of the same values with a separate gradient.
class Fork {
 public:
  virtual ~Fork() = default;
  virtual Activation* view(int reader) = 0;
  // Sets the activation's gradient to the sum of the views' gradients.
  virtual void SumGradients() = 0;
};

// The input of a network.
class Source {
 public:
  virtual ~Source() = default;
  virtual Activation* output() = 0;
  // Copies `samples` samples to the output and sets the remaining rows to zero. If the backend runs ahead,
  // `inputs` are read until the pass has been waited for.
  virtual void Load(const float* inputs, int samples) = 0;
};

struct Score {
  double loss_sum = 0;  // over the samples
  // Samples whose label has the largest output (the first of equal ones). With one output for two classes:
  // samples whose output is above 0 for label 1, and not above 0 for label 0.
  int64_t correct = 0;
  int64_t samples = 0;

  Score& operator+=(const Score& other) {
    loss_sum += other.loss_sum;
    correct += other.correct;
    samples += other.samples;
    return *this;
  }
};

// The loss of model.loss; proto/job.proto has the formulas.
struct LossSpec {
  enum class Kind { kSoftmaxCrossEntropy, kSigmoidCrossEntropy, kMeanSquaredError };
  Kind kind = Kind::kSoftmaxCrossEntropy;
  int num_outputs = 1;  // one for each class, or one for two classes
  float label_smoothing = 0;
  int batch_size = 1;

  int num_classes() const { return num_outputs == 1 && kind == Kind::kSigmoidCrossEntropy ? 2 : num_outputs; }
};

class Loss {
 public:
  virtual ~Loss() = default;
  // Sets the factor of the gradient for all later runs; 1 at first. Only for backends that need a loss scale.
  virtual void ScaleGradient(float scale) {}
  // Scores the first `samples` rows of the outputs against `labels` (`samples` classes), or against `targets`
  // (samples x num_outputs real numbers, without smoothing); the other one is null. With `gradient`, also
  // writes the gradient of the mean loss over these samples. Targets cannot be used with softmax
  // cross-entropy, and no sample with targets counts as correct.
  virtual void Run(const int32_t* labels, const float* targets, int samples, bool gradient) = 0;
  // Returns the score of the last run, and waits for it if the backend runs ahead.
  virtual Score AwaitScore() = 0;
};

// Memory of the caller's that a device reads and writes directly, while this exists.
class Pinning {
 public:
  virtual ~Pinning() = default;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Returns a human-readable description: "cpu: oneDNN 2.6.3, AVX-512, 2 threads".
  virtual std::string Describe() const = 0;

  // Prepares the calling thread for running kernels.
  virtual void Enter() = 0;

  // Returns true if kernels return before they are finished, so that the next ones can be started meanwhile.
  virtual bool runs_ahead() const { return false; }

  // Lets the device reach `values` directly, so that the host does not copy what kernels read from and write
  // to this memory: parameters, gradients, inputs. The memory must outlive the returned object, which is null
  // if there is nothing to do or the memory cannot be pinned. May be called by any thread.
  virtual std::unique_ptr<Pinning> Pin(absl::Span<const float> values) { return nullptr; }

  // Returns true if gradients between layers have the range of float16, so that the loss must be scaled.
  virtual bool wants_loss_scale() const { return false; }

  virtual absl::StatusOr<std::unique_ptr<Source>> CreateSource(const SampleShape& shape, int batch_size) = 0;

  // Creates a kernel of any kind but flatten, which does not change the values: a kernel that takes vectors
  // takes an image or a sequence as the vector that results from flattening it. `inputs` are two for an
  // addition, one for all others.
  virtual absl::StatusOr<std::unique_ptr<Kernel>> CreateKernel(const KernelSpec& spec,
                                                               absl::Span<Activation* const> inputs) = 0;

  virtual absl::StatusOr<std::unique_ptr<Fork>> CreateFork(Activation* activation, int readers) = 0;

  virtual absl::StatusOr<std::unique_ptr<Loss>> CreateLoss(const LossSpec& spec, Activation* outputs) = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_BACKEND_H_
