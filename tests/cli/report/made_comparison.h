// A comparison with simple numbers, for tests.
#ifndef CATCHMENT_TESTS_CLI_REPORT_MADE_COMPARISON_H_
#define CATCHMENT_TESTS_CLI_REPORT_MADE_COMPARISON_H_

#include <string>
#include <vector>

#include "cli/report/comparison.h"

namespace catchment {

// Returns a run whose accuracy rises linearly from 0 to `best`, in `seconds` and 1000 samples.
inline RunResult MadeRun(const std::string& algorithm, int workers, uint64_t seed, double seconds,
                         double best) {
  RunResult run;
  run.algorithm = algorithm;
  run.workers = workers;
  run.seed = seed;
  run.directory = "runs/" + algorithm + "-" + std::to_string(workers) + "-" + std::to_string(seed);
  run.done = true;
  run.learning_rate = 0.05;
  run.momentum = 0.9;
  run.seconds = seconds;
  run.samples = 1000;
  run.samples_per_second = 1000 / seconds;
  run.accuracy = best;
  run.loss = 1 - best;
  run.scores = {{0, 0, 0, 1}, {seconds, 1000, best, 1 - best}};
  run.staleness = {{0, 1}, {workers > 1 ? 2u : 0u, 1}};
  run.staleness_mean = workers > 1 ? 1 : 0;
  run.staleness_p99 = workers > 1 ? 2 : 0;
  run.compute_seconds = seconds;
  run.pull_seconds = seconds / 2;
  run.bytes_pushed = 4000;
  run.bytes_pulled = 4000;
  return run;
}

// sync and downpour, with 1 and 4 workers, three seeds: with 4 workers downpour takes half of sync's time,
// and ends with more errors; with 1 worker they are equal.
inline Comparison MadeComparison() {
  Comparison comparison;
  comparison.command = "catchment compare job --algorithms=sync,downpour";
  comparison.version = "catchment test";
  comparison.job_name = "made";
  comparison.job = "name: \"made\"\n";
  comparison.budget = "samples:1000";
  comparison.stragglers = {"1:4x"};
  comparison.seeds = 3;
  comparison.algorithms = {{"sync", true, "SGD", true, std::nullopt, false},
                           {"downpour", false, "SGD", true, std::nullopt, false}};
  comparison.workers = {1, 4};
  comparison.machine = Machine{"a processor", 2, 4e9, "a system"};
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const double noise = 0.1 * static_cast<double>(seed);
    comparison.runs.push_back(MadeRun("sync", 1, seed, 10 + noise, 0.98));
    comparison.runs.push_back(MadeRun("downpour", 1, seed, 10.3 - noise, 0.98));
    comparison.runs.push_back(MadeRun("sync", 4, seed, 8 + noise, 0.98 + 0.001 * noise));
    comparison.runs.push_back(MadeRun("downpour", 4, seed, 4 + noise, 0.96 + 0.001 * noise));
  }
  return comparison;
}

// Adds a search with 4 workers to a comparison: of the three trials of the first rung one diverged, and the
// second rung chose from two.
inline void AddSearch(Comparison* comparison) {
  for (int trial = 0; trial < 5; ++trial) {
    SearchTrialResult& one = comparison->searched.emplace_back();
    one.rung = trial < 3 ? 1 : 2;
    one.share = trial < 3 ? 0.1 : 0.3;
    one.run = MadeRun("downpour", 4, 4, 1, 0.5 + 0.01 * trial);
    one.run.learning_rate = 0.01 * trial;
    one.run.done = trial != 0;
    one.run.diverged = trial == 0;
    one.chosen = trial == 4;
  }
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_CLI_REPORT_MADE_COMPARISON_H_
