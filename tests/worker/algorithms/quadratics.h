// Quadratic losses to train on, for trajectories that are worked out by hand or line by line in double
// precision: one value, and several workers that draw the center apart.
#ifndef CATCHMENT_TESTS_WORKER_ALGORITHMS_QUADRATICS_H_
#define CATCHMENT_TESTS_WORKER_ALGORITHMS_QUADRATICS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/conformance/in_process_parameters.h"
#include "tests/conformance/layers.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {

// f(x) = x^2 / 2 in every coordinate.
inline auto Quadratic() {
  return InLayers(
      [](absl::Span<const float> x, absl::Span<float> g) { std::copy(x.begin(), x.end(), g.begin()); });
}

inline auto Constant(float gradient) {
  return InLayers(
      [gradient](absl::Span<const float>, absl::Span<float> g) { std::fill(g.begin(), g.end(), gradient); });
}

// --------------------------------------------------------------------------------------- several workers

constexpr int kValues = 16;  // the fewest that a shard holds

// f_i(x) = curvature * (x - Target(i, k))^2 / 2 in coordinate k.
inline double Target(int worker, int k) { return worker + 0.25 * k; }

inline std::vector<float> Initial() {
  std::vector<float> initial(kValues);
  for (int k = 0; k < kValues; ++k) initial[k] = 5 - 0.5f * static_cast<float>(k);
  return initial;
}

// The center after `steps` steps of every worker, by the code under test: the workers take turns. The
// gradients of worker i are of samples[i] samples.
inline std::vector<float> TrainInTurns(const v1::Job& job, int steps, const std::vector<uint32_t>& samples,
                                       double curvature = 1) {
  const auto workers = static_cast<int>(samples.size());
  VirtualCluster cluster(job, Initial(), workers);
  std::vector<VirtualCluster::Work> works;
  for (int worker = 0; worker < workers; ++worker) {
    works.push_back([&, worker](Parameters* parameters) {
      const auto algorithm = MakeAlgorithm(job, kValues, parameters);
      ASSERT_TRUE(algorithm->Start(0).ok());
      const auto gradient = InLayers([&](absl::Span<const float> x, absl::Span<float> g) {
        for (int k = 0; k < kValues; ++k) {
          g[k] = static_cast<float>(curvature * (x[k] - Target(worker, k)));
        }
      });
      for (int t = 0; t < steps; ++t) ASSERT_TRUE(algorithm->Run({samples[worker], 0}, gradient).ok());
      ASSERT_TRUE(algorithm->Finish().ok());
    });
  }
  cluster.Run(works);
  return cluster.Weights();
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_WORKER_ALGORITHMS_QUADRATICS_H_
