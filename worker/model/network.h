// A model made ready to compute: losses and gradients of minibatches, on a backend.
//
// Shapes: inputs are samples x C x H x W; weights and gradient are flat vectors of num_parameters() values
// (common/job/parameter_layout.h), tensors in PyTorch's layouts.
// Batches: kernels are made for usual_batch_size, for max_batch_size and, when first asked for, for powers of
// two below it; a batch of another size runs in the next larger one, padded. The second batch of a size
// allocates nothing.
// Threads: one at a time; it may be another one than the one that made the network.
// Errors: of creation only. A label outside the classes is a bug of whoever loaded the data.
#ifndef CATCHMENT_WORKER_MODEL_NETWORK_H_
#define CATCHMENT_WORKER_MODEL_NETWORK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/model_shapes.h"
#include "common/job/parameter_layout.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "worker/model/loss_scale.h"
#include "worker/model/trainable.h"

namespace catchment {

class Program;

class Network final : public Trainable {
 public:
  struct Options {
    int max_batch_size = 64;
    int usual_batch_size = 0;  // of most batches; 0: max_batch_size
    uint64_t seed = 1;         // of dropout
    // Initial scale and period for a backend that uses a loss scale, from job.computation.
    float loss_scale = 65536;
    uint32_t loss_scale_period = 2000;
  };

  // Makes the kernels for both batch sizes at once; on a backend that is not deterministic this measures
  // which convolutions are fastest, tenths of a second for a small image model.
  // Errors: those of InferShapes; the backend's when the model is too much for the device.
  static absl::StatusOr<std::unique_ptr<Network>> Create(const v1::Model& model, const SampleShape& input,
                                                         const TargetShape& target, const Options& options,
                                                         std::unique_ptr<Backend> backend);
  ~Network() override;

  // Returns the factor of the loss in the next minibatch's backward pass; 1 if the loss is not scaled.
  float loss_scale() const { return loss_scale_ ? loss_scale_->value() : 1.0f; }

  const std::vector<LayerShape>& layers() const { return layers_; }
  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  // Its batch size is that of no kernel.
  const LossSpec& loss() const { return loss_; }
  int64_t num_parameters() const { return num_parameters_; }
  std::string device() const override { return backend_->Describe(); }

  std::unique_ptr<Pinning> Pin(absl::Span<const float> values) override { return backend_->Pin(values); }
  Score Train(absl::Span<const float> weights, const Minibatch& batch, absl::Span<float> gradient);
  Score Train(absl::Span<const float> weights, const Minibatch& batch, absl::Span<float> gradient,
              PassObserver* observer) override;
  // Statistics are kept until the next call. At least one sample is required if the model has batch_norm.
  void EstimateStatistics(absl::Span<const float> weights, absl::FunctionRef<bool(Minibatch*)> next) override;
  std::vector<Statistic> statistics() const override;
  // With batch_norm, EstimateStatistics comes first.
  Score Evaluate(absl::Span<const float> weights, const Minibatch& batch) override;

 private:
  Network(std::vector<LayerShape> layers, const v1::Loss& loss, const Options& options,
          std::unique_ptr<Backend> backend);

  Score TrainOnce(absl::Span<const float> weights, const Minibatch& batch, absl::Span<float> gradient,
                  PassObserver* observer);
  Score TrainScaled(absl::Span<const float> weights, const Minibatch& batch, absl::Span<float> gradient,
                    PassObserver* observer);
  absl::StatusOr<std::unique_ptr<Program>> MakeProgram(int batch_size);
  Program& ProgramFor(const Minibatch& batch);

  const std::vector<LayerShape> layers_;
  const std::vector<TensorSpec> tensors_;
  const int64_t num_parameters_;
  const LossSpec loss_;  // batch size aside
  const Options options_;
  const std::unique_ptr<Backend> backend_;
  std::map<int, std::unique_ptr<Program>> programs_;  // by batch size; they use backend_
  std::optional<LossScale> loss_scale_;               // if the backend wants one
  std::vector<float> statistics_;                     // of all batch_norm layers, one after another
  bool has_statistics_;                               // they are of training samples, or there are none
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_MODEL_NETWORK_H_
