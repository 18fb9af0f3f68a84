#include "cli/job_facts.h"

#include <utility>

#include "common/codec/codec.h"
#include "common/job/data_shape.h"

namespace catchment {
namespace {

constexpr int64_t kMnistTrain = 60000;
constexpr int64_t kMnistTest = 10000;
constexpr int64_t kFloat = sizeof(float);

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t PayloadBytes(const ParameterLayout& layout, const Codec& codec) {
  int64_t bytes = 0;
  for (int s = 0; s < layout.num_shards(); ++s) {
    for (int b = 0; b < layout.num_blocks(s); ++b) bytes += codec.PayloadBytes(layout.block(s, b).size());
  }
  return bytes;
}

}  // namespace

int OptimizerStates(const v1::Optimizer& optimizer) {
  const int momentum = optimizer.momentum() > 0 ? 1 : 0;
  switch (optimizer.kind()) {
    case v1::Optimizer::ADADELTA:
    case v1::Optimizer::ADAM:
    case v1::Optimizer::ADAMW:
      return 2;
    case v1::Optimizer::ADAGRAD:
      return 1;
    case v1::Optimizer::RMSPROP:
      return 1 + momentum;
    default:
      return momentum;
  }
}

absl::StatusOr<JobFacts> JobFacts::Create(const v1::Job& job, int servers) {
  const DataShape shape = ShapeOf(job.data());
  absl::StatusOr<std::vector<LayerShape>> layers = InferShapes(job.model(), shape.input, shape.num_classes);
  if (!layers.ok()) return layers.status();
  const int64_t block_size = int64_t{job.block_kib()} * 1024 / kFloat;
  absl::StatusOr<ParameterLayout> layout = ParameterLayout::Create(ListTensors(*layers), servers, block_size);
  if (!layout.ok()) return layout.status();
  return JobFacts(job, *std::move(layers), *std::move(layout));
}

int64_t JobFacts::period() const {
  const v1::Contribution& contribution = job_.algorithm().contribution();
  return elastic() ? contribution.elastic().communication_period() : contribution.gradient().push_period();
}

int64_t JobFacts::train_samples() const {
  if (job_.data().has_synthetic()) return job_.data().synthetic().samples();
  return job_.data().has_drawn_digits() ? job_.data().drawn_digits().train_samples() : kMnistTrain;
}

int64_t JobFacts::test_samples() const {
  if (job_.data().has_synthetic()) return 0;
  return job_.data().has_drawn_digits() ? job_.data().drawn_digits().test_samples() : kMnistTest;
}

int64_t JobFacts::total_samples() const {
  switch (job_.budget_case()) {
    case v1::Job::kSamples:
      return CeilDivide(job_.samples(), job_.batch_size()) * job_.batch_size();
    case v1::Job::kUpdates:
      return job_.updates() * period() * (synchronous() ? workers() : 1) * job_.batch_size();
    default:
      return job_.epochs() * train_samples();
  }
}

int64_t JobFacts::total_steps() const { return CeilDivide(total_samples(), job_.batch_size()); }
int64_t JobFacts::steps_per_worker() const { return CeilDivide(total_steps(), workers()); }
int64_t JobFacts::updates() const {
  return synchronous() ? CeilDivide(steps_per_worker(), period()) : CeilDivide(total_steps(), period());
}
double JobFacts::epochs() const { return 1.0 * total_samples() / train_samples(); }

WireBytes JobFacts::wire() const {
  const int64_t sent = PayloadBytes(layout_, Codec::ForPush(job_.compression()));
  const int64_t received = PayloadBytes(layout_, Codec::ForPull(job_.compression()));
  if (elastic()) return {sent, received, period(), period()};
  return {sent, received, period(), job_.algorithm().contribution().gradient().fetch_period()};
}

ServerBytes JobFacts::server(int index) const {
  ServerBytes bytes;
  bytes.parameters = layout_.shard(index).size();
  bytes.blocks = layout_.num_blocks(index);
  bytes.weights = bytes.parameters * kFloat;
  bytes.optimizer_state = elastic() ? 0 : bytes.weights * OptimizerStates(job_.optimizer());
  bytes.waiting = synchronous() ? bytes.weights * workers() : 0;
  bytes.snapshot = bytes.weights + bytes.optimizer_state;
  return bytes;
}

WorkerBytes JobFacts::worker() const {
  const int64_t all = layout_.size() * kFloat;
  WorkerBytes bytes;
  bytes.model = EstimateMemoryBytes(layers_, job_.batch_size());
  bytes.algorithm = elastic() ? all * OptimizerStates(job_.optimizer()) : period() > 1 ? all : 0;
  if (job_.compression().push() == v1::Compression::TOP_K) bytes.algorithm += all;
  return bytes;
}

}  // namespace catchment
