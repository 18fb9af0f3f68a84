// A network's kernels for one batch size, linked: the inputs of each kernel, the offsets of its parameters in
// the flat vector, the relus that the previous layer computes, the outputs that may overwrite their inputs,
// and the inputs that need no gradient. If several kernels read one activation, the gradients that they leave
// are summed.
#ifndef CATCHMENT_WORKER_MODEL_PROGRAM_H_
#define CATCHMENT_WORKER_MODEL_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/model_shapes.h"
#include "kernels/backend.h"
#include "worker/model/pass_observer.h"

namespace catchment {

class Program {
 public:
  struct Options {
    LossSpec loss;  // its batch size is that of all kernels
    uint64_t seed = 0;
  };

  // `backend` must outlive the program.
  static absl::StatusOr<std::unique_ptr<Program>> Create(const std::vector<LayerShape>& layers,
                                                         const Options& options, Backend* backend);

  // `weights` is the flat vector. Computes the outputs. Asks for each layer's part before it reads it.
  // pass.statistics: of all layers that have some, one after another; not read or written in training.
  void Forward(const float* weights, const float* inputs, Pass pass, PassObserver* observer);

  // Sets the factor of the loss's gradient: kernels/backend.h, Loss::ScaleGradient.
  void ScaleGradient(float scale) { loss_->ScaleGradient(scale); }

  // Scores the outputs; with `gradient`, also prepares Backward. AwaitScore returns the score of the last
  // call.
  void Evaluate(const int32_t* labels, const float* targets, int samples, bool gradient) {
    loss_->Run(labels, targets, samples, gradient);
  }
  Score AwaitScore() { return loss_->AwaitScore(); }

  // Fills the whole of `gradient` and reports each layer's range, or each part of it, to the observer, the
  // last one first. On a backend that runs ahead, all kernels are started before the first gradient is waited
  // for, so that the device does not wait for the host. A kernel reads no other parameters than its own
  // layer's and keeps no pointer to them, so what has been reported may be overwritten.
  void Backward(const float* weights, Pass pass, float* gradient, PassObserver* observer);

 private:
  static constexpr int64_t kNoStatistics = -1;
  struct Step {
    std::string name;  // of its span in the backward pass
    std::unique_ptr<Kernel> kernel;
    std::unique_ptr<Fork> fork;  // if several read the output, otherwise null
    Range parameters;
    std::vector<Range> parts;            // of the parameters, in the flat vector; one or more
    int64_t statistics = kNoStatistics;  // their offset among those of all layers
    bool backward = false;               // false before the first layer with parameters
  };

  Program() = default;

  bool runs_ahead_ = false;  // the backend's
  std::unique_ptr<Source> source_;
  std::vector<Step> steps_;
  std::unique_ptr<Loss> loss_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_MODEL_PROGRAM_H_
