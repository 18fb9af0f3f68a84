#include "simulation/simulation.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/data_sources.h"
#include "common/job/job_layout.h"
#include "common/job/model_shapes.h"
#include "server/rules/rule.h"
#include "simulation/simulated_worker.h"

namespace catchment {
namespace {

// Memory of a worker, excluding its vectors: two stacks, its part of the ledgers, messages.
constexpr double kBytesPerWorker = 96 << 10;
// Vectors of a worker: weights, gradient, and what contributions of some kinds have; and those of its values
// that are on their way to and from the servers.
constexpr double kVectorsPerWorker = 5;

absl::StatusOr<std::unique_ptr<SimulatedModel>> MakeModel(const v1::Job& job,
                                                          const SimulationOptions& options) {
  return options.quadratic ? MakeQuadratic(*options.quadratic, job, options.servers) : MakeTrainedModel(job);
}

// The objects of one simulation, from the outermost to the innermost.
class Simulation {
 public:
  Simulation(const v1::Job& job, const SimulationOptions& options)
      : job_(job), options_(options), network_(options.network, &events_) {}

  absl::Status Prepare() {
    ASSIGN_OR_RETURN(const Distribution step, StepOf(job_, options_));
    ASSIGN_OR_RETURN(model_, MakeModel(job_, options_));
    ASSIGN_OR_RETURN(ParameterLayout layout,
                     LayoutOf(job_, model_->tensors(), options_.servers, model_->block_size()));
    layout_ = std::make_unique<ParameterLayout>(std::move(layout));
    RETURN_IF_ERROR(MakeServers());
    ASSIGN_OR_RETURN(master_, SimulatedMaster::Create(
                                  {job_, options_.out_dir, options_.seconds, options_.end_reason, &goodput_},
                                  &servers_, model_.get(), &network_, &events_));
    cluster_ = {&job_,
                layout_.get(),
                model_.get(),
                &servers_,
                master_.get(),
                &network_,
                &events_,
                step,
                options_.start,
                options_.slow_steps,
                options_.slow_step_factor,
                options_.failures,
                &goodput_};
    for (uint32_t w = 0; w < job_.workers(); ++w)
      workers_.push_back(std::make_unique<SimulatedWorker>(&cluster_, w));
    return absl::OkStatus();
  }

  absl::StatusOr<v1::JobStatus> Run() {
    absl::Status status = master_->Start();
    for (const auto& worker : workers_) worker->Start();
    while (status.ok() && !master_->over() && events_.RunNext()) status = master_->status();
    const bool over = master_->over();
    v1::JobStatus result = master_->Status();
    EndWorkers();
    RETURN_IF_ERROR(status);
    if (!over) return absl::InternalError("the simulation came to a standstill");
    if (result.phase() == v1::JobStatus::FAILED)
      return absl::InternalError(absl::StrCat("the job failed: ", result.reason()));
    return result;
  }

 private:
  absl::Status MakeServers() {
    ASSIGN_OR_RETURN(const std::vector<float> initial, model_->InitialWeights(*layout_));
    for (int s = 0; s < layout_->num_shards(); ++s) {
      const Range range = layout_->shard(s);
      Shard::Contents contents;
      contents.weights.assign(initial.begin() + range.begin, initial.begin() + range.end);
      servers_.push_back(std::make_unique<SimulatedServer>(job_, *layout_, s, std::move(contents), &events_));
    }
    return absl::OkStatus();
  }

  // The stacks of workers that have not ended hold objects.
  void EndWorkers() {
    for (const auto& worker : workers_) worker->Cancel();
    const auto all_ended = [this] {
      return std::all_of(workers_.begin(), workers_.end(),
                         [](const auto& worker) { return worker->ended(); });
    };
    while (!all_ended()) {
      for (int i = 0; i < 1000; ++i) {
        if (!events_.RunNext()) break;
      }
    }
  }

  const v1::Job job_;
  const SimulationOptions& options_;
  EventQueue events_;
  Goodput goodput_{&events_};
  SimulatedNetwork network_;
  std::unique_ptr<SimulatedModel> model_;
  std::unique_ptr<ParameterLayout> layout_;
  SimulatedServers servers_;
  std::unique_ptr<SimulatedMaster> master_;
  SimulatedCluster cluster_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
};

}  // namespace

absl::StatusOr<Distribution> StepOf(const v1::Job& job, const SimulationOptions& options) {
  if (options.step) return *options.step;
  if (const std::optional<Distribution> step = SyntheticStep(job)) return *step;
  return absl::InvalidArgumentError(
      "--step is required, the time of a step: --step=lognormal:120ms:0.3; or --from=RUN_DIR, "
      "which takes it from a finished run");
}

std::optional<Distribution> SyntheticStep(const v1::Job& job) {
  if (!job.model().has_synthetic()) return std::nullopt;
  const v1::SyntheticModel& synthetic = job.model().synthetic();
  return Distribution{.kind = synthetic.spread() > 0 ? Distribution::kLogNormal : Distribution::kConstant,
                      .mean = synthetic.step_ms() / 1000,
                      .shape = synthetic.spread()};
}

absl::StatusOr<v1::JobStatus> Simulate(const v1::Job& job, const SimulationOptions& options) {
  Simulation simulation(job, options);
  RETURN_IF_ERROR(simulation.Prepare());
  return simulation.Run();
}

absl::StatusOr<int64_t> WorkersThatFit(const v1::Job& job, const SimulationOptions& options, double bytes) {
  const DataShape data = ShapeOf(job.data());
  ASSIGN_OR_RETURN(const auto layers, InferShapes(job.model(), data.input, data.target));
  int64_t values = 0;
  for (const TensorSpec& tensor : ListTensors(layers)) values += tensor.size();
  if (options.quadratic) values = QuadraticValues(job, values, options.servers);
  const double vectors = kVectorsPerWorker + (MakeRule(job)->needs_sent_weights() ? 1 : 0);
  return static_cast<int64_t>(bytes /
                              (kBytesPerWorker + vectors * sizeof(float) * static_cast<double>(values)));
}

}  // namespace catchment
