// A center that SGD moves at once, for trajectories that are worked out by hand.
#ifndef CATCHMENT_TESTS_WORKER_ALGORITHMS_SGD_CENTER_H_
#define CATCHMENT_TESTS_WORKER_ALGORITHMS_SGD_CENTER_H_

#include <cmath>
#include <utility>
#include <vector>

#include "tests/worker/algorithms/fake_parameters.h"

namespace catchment {

class SgdCenter : public FakeParameters {
 public:
  SgdCenter(std::vector<float> weights, float learning_rate)
      : weights(std::move(weights)), learning_rate_(learning_rate) {}

  // First values of what was pushed, the samples of each, and the worker's steps until then.
  std::vector<float> pushed;
  std::vector<uint32_t> samples;
  std::vector<uint64_t> steps;
  std::vector<float> weights;

 private:
  absl::StatusOr<Outcome> CarryOut(const Operation& operation) override {
    CHECK(operation.kind == Operation::kPull || operation.kind == Operation::kPushPull);
    Outcome outcome;
    if (operation.kind == Operation::kPushPull) {
      pushed.push_back(operation.input[0]);
      samples.push_back(operation.samples);
      steps.push_back(operation.steps);
      for (const float value : operation.input) outcome.non_finite |= !std::isfinite(value);
      for (size_t i = 0; i < weights.size() && !outcome.non_finite; ++i) {
        weights[i] -= learning_rate_ * operation.input[i];
      }
    }
    std::copy(weights.begin(), weights.end(), operation.output.begin());
    return outcome;
  }

  const float learning_rate_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_WORKER_ALGORITHMS_SGD_CENTER_H_
