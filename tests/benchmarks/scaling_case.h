// One case of the `scaling` benchmark: a synthetic job with a preset, size and number of workers.
#ifndef CATCHMENT_TESTS_BENCHMARKS_SCALING_CASE_H_
#define CATCHMENT_TESTS_BENCHMARKS_SCALING_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace catchment {

struct ScalingCase {
  std::string preset;  // "sync", "downpour" or "easgd"
  int64_t parameters = 0;
  double step_ms = 0;
  int workers = 1;

  // Returns the size of all weights, or of a gradient.
  int64_t bytes() const { return parameters * static_cast<int64_t>(sizeof(float)); }
  double step_seconds() const { return step_ms / 1000; }
  // "downpour, 1,200,000 parameters, 1000 ms, 60 workers".
  std::string Describe() const;
};

struct ScalingChoice {
  std::vector<std::string> presets = {"sync", "downpour", "easgd"};
  std::vector<int64_t> parameters = {14'000, 1'200'000, 11'000'000};
  std::vector<int64_t> workers = {1, 2, 4, 8, 16, 32, 60};
  int step_ms = 0;  // of all sizes; 0: by the size, 100 ms, 1 s or 5 s
};

// Returns the cases in the order in which they run. Each preset and size begins with one worker, asked for or
// not: efficiency is against it.
std::vector<ScalingCase> MakeScalingCases(const ScalingChoice& choice);

// The job as a file has it: it goes on for ever, and keeps no checkpoints. EASGD exchanges in every step, so
// that an exchange counts like a push.
std::string ScalingJobText(const ScalingCase& c);

// The most that is possible in synchronous training over a network that carries bytes_per_second in all, both
// directions together: efficiency against `workers` times one worker. Gradients may travel while others are
// computed, but for those of the model's first layer, which are ready last, with its weights; and nothing
// moves faster than the network.
double SynchronousBound(const ScalingCase& c, double bytes_per_second);

// Returns an estimate of the memory that servers and workers need together.
int64_t EstimateScalingBytes(const ScalingCase& c);

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_SCALING_CASE_H_
