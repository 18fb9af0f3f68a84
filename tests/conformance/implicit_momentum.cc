#include "tests/conformance/implicit_momentum.h"

#include <cmath>

#include "common/base/random.h"
#include "tests/conformance/jobs.h"
#include "tests/conformance/timed_workers.h"

namespace catchment {

ImplicitMomentum MeasureImplicitMomentum(int workers, double rate, int updates, int runs, uint64_t seed) {
  // The model is of steps of one size, however stale.
  v1::Job job =
      PresetJob("downpour", workers, "optimizer { momentum: 0 } algorithm { compensation { none {} } }");
  job.mutable_optimizer()->set_learning_rate(static_cast<float>(rate));
  ImplicitMomentum result;
  result.mean.assign(updates + 1, 0.0);
  for (int run = 0; run < runs; ++run) {
    Random random(Derive(seed, run));
    TimedWorkers cluster(
        job, {1.0f}, [&](int) { return -std::log(1 - random.Uniform()); },
        [](const std::vector<float>& w, std::vector<float>* g) { *g = w; }, {0.0f});
    result.mean[0] += 1.0 / runs;
    for (int t = 1; t <= updates; ++t) {
      cluster.Step();
      result.mean[t] += double{cluster.Weights()[0]} / runs;
    }
  }
  // dw_{t+1} = a dw_t - b w_t, by the normal equations.
  double dd = 0, dw = 0, ww = 0, ed = 0, ew = 0;
  for (int t = 1; t < updates; ++t) {
    const double w = result.mean[t], d = w - result.mean[t - 1], e = result.mean[t + 1] - w;
    dd += d * d, dw += d * w, ww += w * w, ed += e * d, ew += e * w;
  }
  const double determinant = dd * ww - dw * dw;
  result.a = (ed * ww - ew * dw) / determinant;
  result.b = (ed * dw - ew * dd) / determinant;
  return result;
}

}  // namespace catchment
