#include "tests/benchmarks/apply_passes.h"

#include "optim/optimizer.h"

namespace catchment {
namespace {

// Small, so that no number of passes carries the weights away.
constexpr float kLearningRate = 1e-6f;
// The steps of a worker in the middle of a job. The speed does not depend on it.
constexpr uint64_t kStepsBefore = 100;
constexpr uint32_t kSamples = 32;

// Reads weights, states and values; writes weights, states, and answers or the copy.
template <int kStates, int kValues, bool kAnswers>
void Triad(float s, const BlockVectors& block) {
  const BlockVectors v = block;
#pragma GCC ivdep
  for (int64_t i = 0; i < v.n; ++i) {
    float sum = v.values[0][i];
    if constexpr (kAnswers) sum = v.answers[0][i] = s * sum;
    for (int k = 1; k < kValues; ++k) sum += kAnswers ? v.answers[k][i] = s * v.values[k][i] : v.values[k][i];
    if constexpr (!kAnswers) sum *= s;
    for (int k = 0; k < kStates; ++k) v.states[k][i] += sum;
    if constexpr (kStates > 0) sum = s * v.states[0][i];
    v.weights[i] += sum;
    if constexpr (!kAnswers) v.copy[i] = v.weights[i];
  }
}

v1::Job GradientJob(v1::Optimizer::Kind kind, float momentum = 0, bool nesterov = false) {
  v1::Job job;
  job.mutable_algorithm()->mutable_contribution()->mutable_gradient();
  v1::Optimizer* optimizer = job.mutable_optimizer();
  optimizer->set_kind(kind);
  optimizer->set_momentum(momentum);
  optimizer->set_nesterov(nesterov);
  optimizer->set_rho(0.9f);
  optimizer->set_beta1(0.9f);
  optimizer->set_beta2(0.999f);
  optimizer->set_epsilon(1e-8f);
  optimizer->set_trust_coefficient(0.001f);
  return job;
}

v1::Job WithDecay(v1::Job job) {
  job.mutable_optimizer()->set_weight_decay(0.01f);
  return job;
}

v1::Job ElasticJob(int workers) {
  v1::Job job;
  job.set_workers(workers);
  v1::ElasticDifference* elastic = job.mutable_algorithm()->mutable_contribution()->mutable_elastic();
  elastic->set_moving_rate(0.9f / static_cast<float>(workers));
  return job;
}

}  // namespace

BlockVectors ModelVectors::Block(int64_t begin, int64_t n) {
  int v = 0;
  const auto next = [&] { return all[v++].data() + begin; };
  BlockVectors block;
  block.n = n;
  block.weights = next();
  for (float*& state : block.states) state = next();
  for (const float*& values : block.values) values = next();
  for (float*& answer : block.answers) answer = next();
  block.copy = next();
  return block;
}

const std::vector<ApplyPass>& ApplyPasses() {
  static const std::vector<ApplyPass>* const kPasses = new std::vector<ApplyPass>{
      {"sgd", GradientJob(v1::Optimizer::SGD), 1, Triad<0, 1, false>},
      {"momentum", GradientJob(v1::Optimizer::SGD, 0.9f), 1, Triad<1, 1, false>},
      {"nesterov", GradientJob(v1::Optimizer::SGD, 0.9f, true), 1, Triad<1, 1, false>},
      {"adagrad", GradientJob(v1::Optimizer::ADAGRAD), 1, Triad<1, 1, false>},
      {"adam", GradientJob(v1::Optimizer::ADAM), 1, Triad<2, 1, false>},
      {"rmsprop", GradientJob(v1::Optimizer::RMSPROP), 1, Triad<1, 1, false>},
      {"adadelta", GradientJob(v1::Optimizer::ADADELTA), 1, Triad<2, 1, false>},
      {"adamw", WithDecay(GradientJob(v1::Optimizer::ADAMW)), 1, Triad<2, 1, false>},
      {"momentum_weight_decay", WithDecay(GradientJob(v1::Optimizer::SGD, 0.9f)), 1, Triad<1, 1, false>},
      {"lars", WithDecay(GradientJob(v1::Optimizer::LARS, 0.9f)), 1, Triad<1, 1, false>},
      {"lamb", WithDecay(GradientJob(v1::Optimizer::LAMB)), 1, Triad<2, 1, false>},
      {"sgd_mean_of_4", GradientJob(v1::Optimizer::SGD), kGroup, Triad<0, kGroup, false>},
      {"elastic", ElasticJob(1), 1, Triad<0, 1, true>},
      {"elastic_of_4", ElasticJob(kGroup), kGroup, Triad<0, kGroup, true>},
  };
  return *kPasses;
}

int64_t BytesPerParameter(const ApplyPass& pass, const Rule& rule) {
  const int in_place = 1 + rule.num_states();
  const int written = rule.has_answers() ? pass.contributions : 1;  // the differences, or the copy
  return (2 * in_place + pass.contributions + written) * static_cast<int64_t>(sizeof(float));
}

void ApplyRule(const ApplyPass& pass, const Rule& rule, const BlockVectors& block) {
  std::array<Rule::Input, kGroup> contributions;
  for (int i = 0; i < pass.contributions; ++i) {
    contributions[i] = {block.values[i], kSamples, block.answers[i]};
  }
  Rule::Center center;
  center.size = block.n;
  center.weights = block.weights;
  for (int s = 0; s < rule.num_states(); ++s) center.states[s] = block.states[s];
  center.steps = kStepsBefore;
  center.learning_rate = kLearningRate;
  if (NeedsWholeTensors(pass.job.optimizer())) center.tensor_ends = {&block.n, 1};
  rule.Apply(absl::MakeConstSpan(contributions.data(), pass.contributions), center,
             rule.has_answers() ? nullptr : block.copy);
}

}  // namespace catchment
