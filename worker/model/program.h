// A network's kernels for one batch size, linked: which kernel reads what, where its parameters are in the
// flat vector, which relu is done by the layer before it, and whose input needs no gradient.
#ifndef CATCHMENT_WORKER_MODEL_PROGRAM_H_
#define CATCHMENT_WORKER_MODEL_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model_shapes.h"
#include "kernels/backend.h"
#include "worker/model/pass_observer.h"

namespace catchment {

class Program {
 public:
  struct Options {
    int batch_size = 1;
    int num_classes = 1;
    uint64_t seed = 0;
  };

  // `backend` must outlive the program.
  static absl::StatusOr<std::unique_ptr<Program>> Create(const std::vector<LayerShape>& layers,
                                                         const Options& options, Backend* backend);

  // `weights` is the flat vector. Computes the logits. Asks for each layer's part before it reads it.
  void Forward(const float* weights, const float* inputs, const Pass& pass, PassObserver* observer);

  // With `gradient`, also prepares Backward.
  Score Evaluate(const int32_t* labels, int samples, bool gradient) {
    return loss_->Run(labels, samples, gradient);
  }

  // Fills the whole of `gradient` and tells of each layer's part, the last one first. A kernel reads no other
  // parameters than its own layer's and keeps no pointer to them, so what has been told of may be
  // overwritten.
  void Backward(const float* weights, const Pass& pass, float* gradient, PassObserver* observer);

 private:
  struct Step {
    std::unique_ptr<Kernel> kernel;
    Range parameters;
    bool backward;  // false before the first layer with parameters
  };

  Program() = default;

  std::unique_ptr<Source> source_;
  std::vector<Step> steps_;
  std::unique_ptr<Loss> loss_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_MODEL_PROGRAM_H_
