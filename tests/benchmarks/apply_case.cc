#include "tests/benchmarks/apply_case.h"

#include "optim/optimizer.h"

namespace catchment {
namespace {

// Small, so that no number of passes carries the weights away.
constexpr float kLearningRate = 1e-6f;
// The steps of a worker in the middle of a job. The speed does not depend on it.
constexpr uint64_t kStepsBefore = 100;
constexpr uint32_t kSamples = 32;

// ------------------------------------------------------------------------- triads, named by what they move

// Reads w, g; writes w, copy.
void TriadOfNoState(float s, const BlockVectors& block) {
  float* __restrict w = block.weights;
  const float* __restrict g = block.values[0];
  float* __restrict copy = block.copy;
#pragma GCC ivdep
  for (int64_t i = 0; i < block.n; ++i) copy[i] = w[i] += s * g[i];
}

// Reads w, a, g; writes w, a, copy.
void TriadOfOneState(float s, const BlockVectors& block) {
  float* __restrict w = block.weights;
  float* __restrict a = block.states[0];
  const float* __restrict g = block.values[0];
  float* __restrict copy = block.copy;
#pragma GCC ivdep
  for (int64_t i = 0; i < block.n; ++i) {
    a[i] += s * g[i];
    copy[i] = w[i] += s * a[i];
  }
}

// Reads w, a, b, g; writes w, a, b, copy.
void TriadOfTwoStates(float s, const BlockVectors& block) {
  float* __restrict w = block.weights;
  float* __restrict a = block.states[0];
  float* __restrict b = block.states[1];
  const float* __restrict g = block.values[0];
  float* __restrict copy = block.copy;
#pragma GCC ivdep
  for (int64_t i = 0; i < block.n; ++i) {
    a[i] += s * g[i];
    b[i] += s * g[i];
    copy[i] = w[i] += s * a[i];
  }
}

// Reads w, g0 ... g3; writes w, copy.
void TriadOfGroup(float s, const BlockVectors& block) {
  float* __restrict w = block.weights;
  const float* __restrict g0 = block.values[0];
  const float* __restrict g1 = block.values[1];
  const float* __restrict g2 = block.values[2];
  const float* __restrict g3 = block.values[3];
  float* __restrict copy = block.copy;
#pragma GCC ivdep
  for (int64_t i = 0; i < block.n; ++i) copy[i] = w[i] += s * (g0[i] + g1[i] + g2[i] + g3[i]);
}

// Reads c, x; writes c, d.
void TriadOfExchange(float s, const BlockVectors& block) {
  float* __restrict c = block.weights;
  const float* __restrict x = block.values[0];
  float* __restrict d = block.answers[0];
#pragma GCC ivdep
  for (int64_t i = 0; i < block.n; ++i) {
    d[i] = s * x[i];
    c[i] += d[i];
  }
}

// Reads c, x0 ... x3; writes c, d0 ... d3.
void TriadOfGroupExchange(float s, const BlockVectors& block) {
  float* __restrict c = block.weights;
  const float* __restrict x0 = block.values[0];
  const float* __restrict x1 = block.values[1];
  const float* __restrict x2 = block.values[2];
  const float* __restrict x3 = block.values[3];
  float* __restrict d0 = block.answers[0];
  float* __restrict d1 = block.answers[1];
  float* __restrict d2 = block.answers[2];
  float* __restrict d3 = block.answers[3];
#pragma GCC ivdep
  for (int64_t i = 0; i < block.n; ++i) {
    d0[i] = s * x0[i];
    d1[i] = s * x1[i];
    d2[i] = s * x2[i];
    d3[i] = s * x3[i];
    c[i] += d0[i] + d1[i] + d2[i] + d3[i];
  }
}

// ------------------------------------------------------------------------------------------------ the jobs

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

const std::vector<ApplyCase>& ApplyCases() {
  static const std::vector<ApplyCase>* const kCases = new std::vector<ApplyCase>{
      {"sgd", GradientJob(v1::Optimizer::SGD), 1, TriadOfNoState},
      {"momentum", GradientJob(v1::Optimizer::SGD, 0.9f), 1, TriadOfOneState},
      {"nesterov", GradientJob(v1::Optimizer::SGD, 0.9f, true), 1, TriadOfOneState},
      {"adagrad", GradientJob(v1::Optimizer::ADAGRAD), 1, TriadOfOneState},
      {"adam", GradientJob(v1::Optimizer::ADAM), 1, TriadOfTwoStates},
      {"rmsprop", GradientJob(v1::Optimizer::RMSPROP), 1, TriadOfOneState},
      {"adadelta", GradientJob(v1::Optimizer::ADADELTA), 1, TriadOfTwoStates},
      {"adamw", WithDecay(GradientJob(v1::Optimizer::ADAMW)), 1, TriadOfTwoStates},
      {"momentum_weight_decay", WithDecay(GradientJob(v1::Optimizer::SGD, 0.9f)), 1, TriadOfOneState},
      {"lars", WithDecay(GradientJob(v1::Optimizer::LARS, 0.9f)), 1, TriadOfOneState},
      {"lamb", WithDecay(GradientJob(v1::Optimizer::LAMB)), 1, TriadOfTwoStates},
      {"sgd_mean_of_4", GradientJob(v1::Optimizer::SGD), kGroup, TriadOfGroup},
      {"elastic", ElasticJob(1), 1, TriadOfExchange},
      {"elastic_of_4", ElasticJob(kGroup), kGroup, TriadOfGroupExchange},
  };
  return *kCases;
}

int64_t BytesPerParameter(const ApplyCase& c, const Rule& rule) {
  const int in_place = 1 + rule.num_states();
  const int written = rule.has_answers() ? c.contributions : 1;  // the differences, or the copy
  return (2 * in_place + c.contributions + written) * static_cast<int64_t>(sizeof(float));
}

void ApplyRule(const ApplyCase& c, const Rule& rule, const BlockVectors& block) {
  std::array<Rule::Input, kGroup> contributions;
  for (int i = 0; i < c.contributions; ++i) {
    contributions[i] = {block.values[i], kSamples, block.answers[i]};
  }
  Rule::Center center;
  center.size = block.n;
  center.weights = block.weights;
  for (int s = 0; s < rule.num_states(); ++s) center.states[s] = block.states[s];
  center.steps = kStepsBefore;
  center.learning_rate = kLearningRate;
  if (NeedsWholeTensors(c.job.optimizer())) center.tensor_ends = {&block.n, 1};
  rule.Apply(absl::MakeConstSpan(contributions.data(), c.contributions), center,
             rule.has_answers() ? nullptr : block.copy);
}

}  // namespace catchment
