#include "tests/conformance/implicit_momentum.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/random.h"
#include "tests/conformance/jobs.h"
#include "tests/conformance/timed_workers.h"

namespace catchment {
namespace {

TEST(ImplicitMomentum, IsOneMinusOneOverTheWorkers) {
  constexpr double kRate = 0.3;
  for (const int g : {1, 2, 4, 8, 16}) {
    const ImplicitMomentum measured = MeasureImplicitMomentum(g, kRate, 20 + 10 * g, 3000, 7);
    EXPECT_NEAR(measured.a, 1 - 1.0 / g, 0.05) << g << " workers";
    EXPECT_NEAR(measured.b, kRate / g, 0.1 * kRate / g) << g << " workers";
  }
}

// Exponential service times on a quadratic without noise, with its own curvature for each of 64
// coordinates.
struct NoiselessQuadratic {
  explicit NoiselessQuadratic(const v1::Job& job)
      : cluster(
            job, std::vector<float>(kValues, 1.0f), [this](int) { return -std::log(1 - random.Uniform()); },
            [](const std::vector<float>& w, std::vector<float>* g) {
              for (int64_t i = 0; i < kValues; ++i) {
                (*g)[i] = static_cast<float>((0.5 + double(i) / kValues) * w[i]);
              }
            }) {}
  static constexpr int64_t kValues = 64;
  Random random{11};
  TimedWorkers cluster;
};

TEST(OpenLoopMomentum, SetsWhatTheMeasuredStalenessSays) {
  for (const int g : {1, 2, 4, 8}) {
    // A long average, as exponential times differ so much.
    const v1::Job job = PresetJob("staleness_aware", g,
                                  "optimizer { learning_rate: 0.001 } algorithm { compensation { "
                                  "open_loop_momentum { averaging: 0.01 } } }");
    NoiselessQuadratic quadratic(job);
    for (int t = 0; t < 3000; ++t) quadratic.cluster.Step();
    const v1::MomentumState state = quadratic.cluster.shard().Report().momentum();
    const double tau = state.staleness_mean();
    EXPECT_NEAR(tau, g - 1, 0.5 * (g - 1)) << g << " workers";
    EXPECT_NEAR(state.momentum(), std::max(0.0, 0.9 - tau / (1 + tau)), 1e-5) << g << " workers";
  }
}

TEST(ClosedLoopMomentum, ReadsItsTargetInTheEnd) {
  for (const int g : {1, 2, 4, 8}) {
    const v1::Job job =
        PresetJob("staleness_aware", g,
                  "optimizer { learning_rate: 0.0005 momentum: 0.6 } algorithm { compensation { "
                  "closed_loop_momentum { gain: 0.01 } } }");
    NoiselessQuadratic quadratic(job);
    double sum = 0;
    for (int t = 0; t < 4000; ++t) {
      quadratic.cluster.Step();
      if (t >= 3000) sum += quadratic.cluster.shard().Report().momentum().total_momentum() / 1000;
    }
    EXPECT_NEAR(sum, 0.6, 0.1) << g << " workers, momentum "
                               << quadratic.cluster.shard().Report().momentum().momentum();
  }
}

}  // namespace
}  // namespace catchment
