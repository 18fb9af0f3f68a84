// Writes the measurements of docs/results/staleness.md, "The momentum that asynchrony adds", to standard
// output: a JSON list, one object for each number of workers, with keys workers, a, b, a_predicted,
// b_predicted, runs.
#include <cstdio>
#include <vector>

#include "tests/conformance/implicit_momentum.h"

int main() {
  constexpr double kRate = 0.3;
  constexpr int kRuns = 10000;
  const std::vector<int> workers = {1, 2, 4, 8, 16};
  for (const int g : workers) {
    const auto measured = catchment::MeasureImplicitMomentum(g, kRate, 20 + 10 * g, kRuns, 7);
    std::printf(
        "%s{\"workers\": %d, \"a\": %.5f, \"b\": %.5f, \"a_predicted\": %.5f, "
        "\"b_predicted\": %.5f, \"runs\": %d}%s\n",
        g == workers.front() ? "[" : " ", g, measured.a, measured.b, 1 - 1.0 / g, kRate / g, kRuns,
        g == workers.back() ? "]" : ",");
  }
  return 0;
}
